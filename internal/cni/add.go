package cni

import (
	"context"
	"errors"
	"fmt"
	"net"

	cnins "github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Add makes the pod's device, has the agent make an endpoint of it, configures the pod's side, and prints
// the result. A step that fails undoes those before it. An attachment that exists already is refused
// and left as it is.
func (p *Plugin) Add(args *skel.CmdArgs) (err error) {
	conf, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}
	if err := conf.checkForAdd(); err != nil {
		return err
	}
	dns, err := conf.dns()
	if err != nil {
		return err
	}
	throughStack, err := conf.throughStack()
	if err != nil {
		return err
	}
	ports, err := conf.portMappings()
	if err != nil {
		return err
	}
	pod, err := parsePod(args.Args)
	if err != nil {
		return err
	}
	if err := p.checkNew(args); err != nil {
		return err
	}
	agent := p.Agent(conf.AgentSocket)

	pair, err := p.Devices.CreatePair(device.PairSpec{ContainerID: args.ContainerID, IfName: args.IfName, Netns: args.Netns})
	if err != nil {
		return deviceError("create the pod's device", err)
	}
	defer p.undo(&err, "delete the pod's device", func() error { return p.Devices.DeleteHost(pair.HostName) })

	var resp *agentapi.AddResponse
	err = p.ask(func(ctx context.Context) (err error) {
		req := addRequest(args, conf.Name, pod, pair)
		req.ThroughStack, req.PortMappings, req.Direct = throughStack, ports, conf.Routing == routingEBPF
		resp, err = agent.Add(ctx, req)
		return err
	})
	if err != nil {
		// Whether the agent got to know the endpoint or not, it ends with its device.
		return agentError("add endpoint", conf.AgentSocket, err)
	}
	defer p.undo(&err, "delete the endpoint", func() error {
		return p.ask(func(ctx context.Context) error {
			return agent.Delete(ctx, agentapi.DeleteRequest{Attachment: attachment(args), HostIfIndex: pair.HostIndex})
		})
	})

	cfg, err := podConfig(resp, pair.HostMAC)
	if err != nil {
		return err
	}
	if err := p.Devices.ConfigurePod(args.Netns, args.IfName, cfg); err != nil {
		return deviceError("configure the pod's device", err)
	}

	printed, err := result(pair, args.Netns, cfg, dns).GetAsVersion(conf.CNIVersion)
	if err != nil {
		return fmt.Errorf("convert result to CNI %s: %w", conf.CNIVersion, err)
	}
	if err := printed.PrintTo(p.Stdout); err != nil {
		return types.NewError(types.ErrIOFailure, "print result: "+err.Error(), "")
	}
	return nil
}

// undo, deferred, runs step if the function fails; what goes wrong with it is added to the error's details.
func (p *Plugin) undo(failed *error, what string, step func() error) {
	if *failed == nil {
		return
	}
	err := step()
	if err == nil {
		return
	}
	var told *types.Error
	if !errors.As(*failed, &told) {
		told = types.NewError(types.ErrInternal, (*failed).Error(), "")
	}
	details := fmt.Sprintf("undo: %s: %v", what, err)
	if told.Details != "" {
		details = told.Details + "; " + details
	}
	*failed = types.NewError(told.Code, told.Msg, details)
}

// checkNew refuses a namespace that is the node's own, and an attachment that exists.
func (p *Plugin) checkNew(args *skel.CmdArgs) error {
	own, nsErr := cnins.CheckNetNS(args.Netns)
	if nsErr != nil {
		return nsErr
	}
	if own {
		return types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %s is the node's own network namespace", args.Netns), "")
	}
	name := device.HostName(args.ContainerID, args.IfName)
	index, err := p.Devices.HostIndex(name)
	if err != nil {
		return deviceError("look for the pod's device", err)
	}
	if index != 0 {
		return types.NewError(ErrExists, fmt.Sprintf("interface %s of container %s is attached already (device %s); DEL it first", args.IfName, args.ContainerID, name), "")
	}
	return nil
}

func addRequest(args *skel.CmdArgs, network string, pod agentapi.PodRef, pair device.Pair) agentapi.AddRequest {
	return agentapi.AddRequest{
		Attachment:  attachment(args),
		Network:     network,
		Netns:       args.Netns,
		Pod:         pod,
		HostDevice:  pair.HostName,
		HostIfIndex: pair.HostIndex,
		HostMAC:     pair.HostMAC.String(),
		PodMAC:      pair.PodMAC.String(),
	}
}

// podConfig checks the agent's answer, so that a mistake in it does not become a broken pod.
func podConfig(resp *agentapi.AddResponse, hostMAC net.HardwareAddr) (device.PodConfig, error) {
	invalid := func(format string, args ...any) (device.PodConfig, error) {
		return device.PodConfig{}, types.NewError(types.ErrInternal, "answer of the agent: "+fmt.Sprintf(format, args...), "")
	}
	if len(resp.Addresses) == 0 || len(resp.Addresses) != len(resp.Gateways) {
		return invalid("%d addresses and %d gateways", len(resp.Addresses), len(resp.Gateways))
	}
	for i, prefix := range resp.Addresses {
		if !prefix.IsValid() || !prefix.IsSingleIP() {
			return invalid("address %s is not a host prefix", prefix)
		}
		if gateway := resp.Gateways[i]; gateway.BitLen() != prefix.Addr().BitLen() {
			return invalid("gateway %s is not of the family of %s", gateway, prefix)
		}
	}
	return device.PodConfig{MTU: resp.MTU, Addresses: resp.Addresses, Gateways: resp.Gateways, HostMAC: hostMAC}, nil
}
