package cni

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Del removes the endpoint and its device. It can be repeated, and it needs neither the pod's namespace
// nor the agent: with the device the endpoint ends, and an agent that is away notices when it is back.
func (p *Plugin) Del(args *skel.CmdArgs) error {
	conf, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}
	name := device.HostName(args.ContainerID, args.IfName)
	req := agentapi.DeleteRequest{Attachment: attachment(args)}
	if req.HostIfIndex, err = p.Devices.HostIndex(name); err != nil {
		return deviceError("look for the pod's device", err)
	}
	if req.HostIfIndex == 0 {
		req.HostIfIndex = agentapi.NoDevice
	}
	told := p.ask(func(ctx context.Context) error {
		return p.Agent(conf.AgentSocket).Delete(ctx, req)
	})
	// Also when the agent has done it: it may not have known the device of an ADD that was cut short.
	if err := p.Devices.DeleteHost(name); err != nil {
		return deviceError("delete the pod's device", err)
	}
	switch {
	case told == nil:
		return nil
	case away(told):
		fmt.Fprintf(p.Stderr, "%s: device deleted without the agent, which will notice: %v\n", Type, told)
		return nil
	default:
		return agentError("delete endpoint", conf.AgentSocket, told)
	}
}

// away reports whether the agent did not come to answer.
func away(err error) bool {
	return errors.Is(err, agentapi.ErrNoAgent) || errors.Is(err, context.DeadlineExceeded) || agentapi.HasCode(err, agentapi.CodeNotReady)
}
