package cni

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/bandwidth"
	"github.com/beeline-cni/beeline/internal/device"
)

// The values of the field "routing" are those of the agent's flag --routing: what forwards the packets of this
// network's pods. By default that is the datapath, except for pods that need the kernel stack.
const (
	routingEBPF   = "ebpf"
	routingKernel = "kernel"
)

func checkRouting(routing string) error {
	switch routing {
	case "", routingEBPF, routingKernel:
		return nil
	default:
		return fmt.Errorf("%q is neither %q nor %q", routing, routingEBPF, routingKernel)
	}
}

// throughStack returns the reason why the pod's packets must take the kernel stack, empty if they need not.
func (c *config) throughStack() string {
	if c.Routing == routingKernel {
		return "routing of network " + c.Name
	}
	return ""
}

// device returns the kind of the pod's device; empty leaves it to the agent. The packets of a macvlan device pass no host end, where
// bandwidth is limited.
func (c *config) device(limits agentapi.Bandwidth) string {
	if c.Device == "" && limits != (agentapi.Bandwidth{}) {
		return string(device.Veth)
	}
	return c.Device
}

// bandwidth returns the limits of the pod. Bursts are those of the agent: runtimes request any.
func (c *config) bandwidth() (limit agentapi.Bandwidth, err error) {
	var limits struct {
		// Bits per second, from the pod's perspective.
		IngressRate float64 `json:"ingressRate"`
		EgressRate  float64 `json:"egressRate"`
	}
	if err := c.capability("bandwidth", &limits); err != nil {
		return limit, err
	}
	for _, rate := range []struct {
		name string
		from float64
		to   *uint64
	}{{"egressRate", limits.EgressRate, &limit.Egress}, {"ingressRate", limits.IngressRate, &limit.Ingress}} {
		if rate.from < 0 || rate.from > bandwidth.Max || rate.from > 0 && rate.from < bandwidth.Min {
			return limit, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("runtimeConfig.bandwidth.%s: %.0f bit/s is not between %d and %d", rate.name, rate.from, uint64(bandwidth.Min), uint64(bandwidth.Max)), "")
		}
		*rate.to = uint64(rate.from)
	}
	return limit, nil
}
