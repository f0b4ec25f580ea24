package cni

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Del removes the endpoint and its device. It is idempotent and needs neither the pod's namespace nor the agent: an
// agent that is down removes the endpoint of a deleted device when it starts.
func (p *Plugin) Del(args *skel.CmdArgs) error {
	conf, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}
	name := device.HostName(args.ContainerID, args.IfName)
	req := agentapi.DeleteRequest{Attachment: attachment(args)}
	host, exists, err := p.Devices.HostEnd(name)
	if err != nil {
		return deviceError("find the pod's device", err)
	}
	req.HostIfIndex = host.Index
	if !exists {
		req.HostIfIndex = agentapi.NoDevice
	}
	agentErr := p.request(func(ctx context.Context) error {
		return p.Agent(conf.AgentSocket).Delete(ctx, req)
	})
	// Even if the agent succeeded: it may not have the device of an interrupted ADD.
	if err := p.Devices.Delete(name); err != nil {
		return deviceError("delete the pod's device", err)
	}
	if host.Kind == device.Macvlan && args.Netns != "" { // else it goes with the namespace
		if err := p.Devices.DeleteMacvlan(args.Netns, args.IfName); err != nil {
			return deviceError("delete the pod's device", err)
		}
	}
	switch {
	case agentErr == nil:
		return nil
	case isUnavailable(agentErr):
		fmt.Fprintf(p.Stderr, "%s: device deleted without the agent, which removes the endpoint when it is back: %v\n", Type, agentErr)
		return nil
	default:
		return agentError("delete endpoint", conf.AgentSocket, agentErr)
	}
}

// isUnavailable reports whether the agent did not process the request.
func isUnavailable(err error) bool {
	return errors.Is(err, agentapi.ErrNoAgent) || errors.Is(err, context.DeadlineExceeded) || agentapi.HasCode(err, agentapi.CodeNotReady)
}
