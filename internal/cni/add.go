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

// Add creates the pod's device, registers it with the agent as an endpoint, configures the pod's end, and prints the
// result. A step that fails undoes the previous ones. An attachment that exists is an error and stays as it is.
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

	dev, err := p.Devices.Create(device.PodSpec{ContainerID: args.ContainerID, IfName: args.IfName, Netns: args.Netns})
	if err != nil {
		return deviceError("create the pod's device", err)
	}
	defer p.undo(&err, "delete the pod's device", func() error { return p.Devices.Delete(dev.HostName) })

	var resp *agentapi.AddResponse
	err = p.request(func(ctx context.Context) (err error) {
		req := addRequest(args, conf.Name, pod, dev)
		req.ThroughStack, req.PortMappings, req.Direct = throughStack, ports, conf.Routing == routingEBPF
		resp, err = agent.Add(ctx, req)
		return err
	})
	if err != nil {
		// If the agent has the endpoint, it removes it with the device.
		return agentError("add endpoint", conf.AgentSocket, err)
	}
	defer p.undo(&err, "delete the endpoint", func() error {
		return p.request(func(ctx context.Context) error {
			return agent.Delete(ctx, agentapi.DeleteRequest{Attachment: attachment(args), HostIfIndex: dev.HostIndex})
		})
	})

	cfg, err := podConfig(resp, dev.HostMAC)
	if err != nil {
		return err
	}
	if err := p.Devices.Configure(args.Netns, args.IfName, cfg); err != nil {
		return deviceError("configure the pod's device", err)
	}

	printed, err := result(dev, args.Netns, cfg, dns).GetAsVersion(conf.CNIVersion)
	if err != nil {
		return fmt.Errorf("convert result to CNI %s: %w", conf.CNIVersion, err)
	}
	if err := printed.PrintTo(p.Stdout); err != nil {
		return types.NewError(types.ErrIOFailure, "print result: "+err.Error(), "")
	}
	return nil
}

// undo, deferred, runs step if the function fails and adds an error of step to the error's details.
func (p *Plugin) undo(failed *error, what string, step func() error) {
	if *failed == nil {
		return
	}
	err := step()
	if err == nil {
		return
	}
	var cniErr *types.Error
	if !errors.As(*failed, &cniErr) {
		cniErr = types.NewError(types.ErrInternal, (*failed).Error(), "")
	}
	details := fmt.Sprintf("undo: %s: %v", what, err)
	if cniErr.Details != "" {
		details = cniErr.Details + "; " + details
	}
	*failed = types.NewError(cniErr.Code, cniErr.Msg, details)
}

// checkNew returns an error for the node's own network namespace and for an attachment that exists.
func (p *Plugin) checkNew(args *skel.CmdArgs) error {
	own, nsErr := cnins.CheckNetNS(args.Netns)
	if nsErr != nil {
		return nsErr
	}
	if own {
		return types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %s is the node's own network namespace", args.Netns), "")
	}
	name := device.HostName(args.ContainerID, args.IfName)
	_, exists, err := p.Devices.HostEnd(name)
	if err != nil {
		return deviceError("find the pod's device", err)
	}
	if exists {
		return types.NewError(ErrExists, fmt.Sprintf("interface %s of container %s is attached already (device %s); DEL it first", args.IfName, args.ContainerID, name), "")
	}
	return nil
}

func addRequest(args *skel.CmdArgs, network string, pod agentapi.PodRef, dev device.PodDevice) agentapi.AddRequest {
	return agentapi.AddRequest{
		Attachment:  attachment(args),
		Network:     network,
		Netns:       args.Netns,
		Pod:         pod,
		HostDevice:  dev.HostName,
		HostIfIndex: dev.HostIndex,
		HostMAC:     dev.HostMAC.String(),
		PodMAC:      dev.PodMAC.String(),
	}
}

// podConfig validates the agent's response, so that a bug does not break the pod.
func podConfig(resp *agentapi.AddResponse, hostMAC net.HardwareAddr) (device.PodConfig, error) {
	invalid := func(format string, args ...any) (device.PodConfig, error) {
		return device.PodConfig{}, types.NewError(types.ErrInternal, "response of the agent: "+fmt.Sprintf(format, args...), "")
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
