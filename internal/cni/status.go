package cni

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
)

// Status succeeds if ADD can: the agent replies that it is ready. Otherwise the error code is 50 (not available), never
// 51 (limited connectivity): existing pods do not need the agent.
func (p *Plugin) Status(args *skel.CmdArgs) error {
	conf, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}
	err = p.request(func(ctx context.Context) error { return p.Agent(conf.AgentSocket).Ready(ctx) })
	if err != nil {
		return types.NewError(types.ErrPluginNotAvailable,
			fmt.Sprintf("%s cannot add pods now, existing ones are not affected: %v", Type, err), "")
	}
	return nil
}
