package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	cnins "github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Add asks the agent which device the pod gets, creates it, registers it with the agent as an endpoint, configures the pod's end, and prints the
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
	limits, err := conf.bandwidth()
	if err != nil {
		return err
	}
	if limits != (agentapi.Bandwidth{}) && device.Kind(conf.Device) == device.Macvlan {
		return types.NewError(types.ErrInvalidNetworkConfig, "runtimeConfig.bandwidth: pods with macvlan devices have no limits: remove the limits, or \"device\" of the network configuration", "")
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

	var prepared *agentapi.Preparation
	if err := p.request(func(ctx context.Context) (err error) {
		prepared, err = agent.Prepare(ctx, agentapi.PrepareRequest{Attachment: attachment(args), Pod: pod, Device: conf.device(limits), IPPool: conf.IPPool})
		return err
	}); err != nil {
		return agentError("prepare the endpoint", conf.AgentSocket, err)
	}
	dev, err := p.Devices.Create(device.PodSpec{Kind: device.Kind(prepared.Device), ContainerID: args.ContainerID, IfName: args.IfName, Netns: args.Netns, Parent: prepared.Parent})
	if err != nil {
		return deviceError("create the pod's device", err)
	}
	defer p.undo(&err, "delete the pod's device", func() error { return p.Devices.Delete(dev.HostName) })
	var macvlan *agentapi.Macvlan
	if device.Kind(prepared.Device) == device.Macvlan {
		macvlan = &agentapi.Macvlan{Parent: prepared.Parent, NetnsCookie: dev.NetnsCookie}
		defer p.undo(&err, "delete the pod's device", func() error { return p.Devices.DeleteMacvlan(args.Netns, args.IfName) })
	}

	var endpoint *agentapi.Endpoint
	err = p.request(func(ctx context.Context) (err error) {
		endpoint, err = agent.Add(ctx, agentapi.AddRequest{Direct: conf.Routing == routingEBPF, IPPool: conf.IPPool, Endpoint: agentapi.Endpoint{
			Attachment: attachment(args), Network: conf.Name, Netns: args.Netns, Pod: pod,
			HostDevice: dev.HostName, HostIfIndex: dev.HostIndex, HostMAC: dev.HostMAC.String(), PodMAC: dev.PodMAC.String(),
			Macvlan: macvlan, ThroughStack: conf.throughStack(), Bandwidth: limits, PortMappings: ports,
		}})
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

	if err := checkAddresses(endpoint); err != nil {
		return err
	}
	second, err := p.Devices.IsSecond(args.Netns, args.IfName)
	if err != nil {
		return deviceError("find the pod's default routes", err)
	}
	cfg := podConfig(endpoint, dev.HostMAC, second)
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

// The static next hops of every pod. They are link-scoped addresses with a permanent neighbour entry, so that pods never
// resolve their gateway.
var (
	gatewayIPv4 = netip.MustParseAddr("169.254.1.1")
	gatewayIPv6 = netip.MustParseAddr("fe80::1")
)

// checkAddresses validates the endpoint, so that a bug of the agent does not break the pod.
func checkAddresses(endpoint *agentapi.Endpoint) error {
	if len(endpoint.Addresses) == 0 || !endpoint.Addresses[0].IsValid() {
		return types.NewError(types.ErrInternal, fmt.Sprintf("response of the agent: addresses %v", endpoint.Addresses), "")
	}
	return nil
}

// podConfig is the configuration of the pod's end.
func podConfig(endpoint *agentapi.Endpoint, hostMAC net.HardwareAddr, second bool) device.PodConfig {
	config := device.PodConfig{MTU: endpoint.MTU, Second: second, Networks: endpoint.Networks, HostMAC: hostMAC, Announce: endpoint.Macvlan != nil}
	if endpoint.Macvlan != nil && !second {
		for _, route := range endpoint.Macvlan.Routes {
			config.Routes = append(config.Routes, device.PodRoute(route))
		}
	}
	for _, addr := range endpoint.Addresses {
		config.Addresses = append(config.Addresses, netip.PrefixFrom(addr, addr.BitLen()))
		if config.NextHop(addr).IsValid() {
			continue
		}
		gateway := gatewayIPv6
		if addr.Is4() {
			gateway = gatewayIPv4
		}
		config.Gateways = append(config.Gateways, gateway)
	}
	return config
}
