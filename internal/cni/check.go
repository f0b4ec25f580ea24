package cni

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Check compares the result of ADD (and of the plugins chained after it), the agent's endpoint, and the pod's network.
// The error names the first difference.
func (p *Plugin) Check(args *skel.CmdArgs) error {
	conf, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}
	prev, err := conf.prevResult()
	if err != nil {
		return err
	}
	var endpoint *agentapi.Endpoint
	err = p.request(func(ctx context.Context) (err error) {
		endpoint, err = p.Agent(conf.AgentSocket).Check(ctx, attachment(args))
		return err
	})
	if agentapi.HasCode(err, agentapi.CodeNotFound) {
		return differs("the agent has no endpoint for interface %s of container %s", args.IfName, args.ContainerID)
	}
	if err != nil {
		return agentError("check endpoint", conf.AgentSocket, err)
	}
	if endpoint.State != agentapi.StateReady {
		return differs("the agent reports state %s", endpoint.State)
	}
	second, err := p.Devices.IsSecond(args.Netns, args.IfName)
	if err != nil {
		return differs("%v", err)
	}
	want, err := compare(prev, endpoint, args, second)
	if err != nil {
		return err
	}
	if err := p.Devices.Check(args.Netns, args.IfName, want); err != nil {
		return differs("%v", err)
	}
	return nil
}

func differs(format string, args ...any) *types.Error {
	return types.NewError(ErrDiffers, "check: "+fmt.Sprintf(format, args...), "")
}

// prevResult decodes the result of ADD, which CHECK requires.
func (c *config) prevResult() (*current.Result, error) {
	if c.PrevResult == nil {
		return nil, invalidConfig("field \"prevResult\": missing, CHECK needs it")
	}
	conf := &types.PluginConf{CNIVersion: c.CNIVersion, RawPrevResult: c.PrevResult}
	if err := version.ParsePrevResult(conf); err != nil {
		return nil, invalidConfig(fmt.Sprintf("field \"prevResult\": %v", err))
	}
	r, err := current.NewResultFromResult(conf.PrevResult)
	if err != nil {
		return nil, invalidConfig(fmt.Sprintf("field \"prevResult\": %v", err))
	}
	return r, nil
}

// compare checks the result against the endpoint and returns the expected network of the pod.
func compare(prev *current.Result, endpoint *agentapi.Endpoint, args *skel.CmdArgs, second bool) (device.PodConfig, error) {
	host := device.HostName(args.ContainerID, args.IfName)
	if endpoint.HostDevice != host {
		return device.PodConfig{}, differs("the agent's endpoint is on device %s, want %s", endpoint.HostDevice, host)
	}
	if !slices.ContainsFunc(prev.Interfaces, func(i *current.Interface) bool { return i.Name == host && i.Sandbox == "" }) {
		return device.PodConfig{}, differs("device %s is not in prevResult", host)
	}
	index := slices.IndexFunc(prev.Interfaces, func(i *current.Interface) bool { return i.Name == args.IfName && i.Sandbox == args.Netns })
	if index < 0 {
		return device.PodConfig{}, differs("interface %s in %s is not in prevResult", args.IfName, args.Netns)
	}
	pod := prev.Interfaces[index]
	if pod.Mac != "" && !strings.EqualFold(pod.Mac, endpoint.PodMAC) {
		return device.PodConfig{}, differs("%s has the link-layer address %s in prevResult, the agent sends to %s", args.IfName, pod.Mac, endpoint.PodMAC)
	}
	hostMAC, err := net.ParseMAC(endpoint.HostMAC)
	if err != nil {
		return device.PodConfig{}, differs("the agent's endpoint has the host address %q: %v", endpoint.HostMAC, err)
	}

	if err := checkAddresses(endpoint); err != nil {
		return device.PodConfig{}, differs("%v", err)
	}
	want := podConfig(endpoint, hostMAC, second)
	if pod.Mtu != endpoint.MTU {
		want.MTU = 0 // a chained plugin, or the agent with the uplink's MTU, changed it later
	}
	var addresses []netip.Addr
	for _, ip := range prev.IPs {
		if ip.Interface != nil && *ip.Interface != index {
			continue
		}
		addr, okAddr := netip.AddrFromSlice(ip.Address.IP)
		gateway, okGateway := netip.AddrFromSlice(ip.Gateway)
		if !okAddr || !okGateway || !slices.Contains(endpoint.Addresses, addr.Unmap()) {
			continue // added by a chained plugin
		}
		addr, gateway = addr.Unmap(), gateway.Unmap()
		if next := want.NextHop(addr); gateway != next {
			return device.PodConfig{}, differs("the gateway of %s is %s in prevResult, not %s", addr, gateway, next)
		}
		addresses = append(addresses, addr)
	}
	for _, addr := range endpoint.Addresses {
		if !slices.Contains(addresses, addr) {
			return device.PodConfig{}, differs("the agent's endpoint has the address %s, which prevResult lacks on %s", addr, args.IfName)
		}
	}
	return want, nil
}
