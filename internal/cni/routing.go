package cni

import (
	"fmt"

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

// throughStack returns the reason why the pod's packets must take the kernel stack, empty if they need not. The shaping
// of the plugin bandwidth works only there; the runtime passes the limits because that plugin's configuration declares
// the capability.
func (c *config) throughStack() (string, error) {
	limited, err := c.hasBandwidthLimit()
	if err != nil {
		return "", err
	}
	switch c.Routing {
	case routingKernel:
		return "routing of network " + c.Name, nil
	case routingEBPF:
		return "", nil
	}
	if limited {
		return "bandwidth limit", nil
	}
	return "", nil
}

// device returns the kind of the pod's device; empty leaves it to the agent. The plugin bandwidth accepts veth devices only.
func (c *config) device() (string, error) {
	limited, err := c.hasBandwidthLimit()
	if err != nil || c.Device != "" || !limited {
		return c.Device, err
	}
	return string(device.Veth), nil
}

// hasBandwidthLimit reports whether the pod has a bandwidth limit: a rate of 0 is none.
func (c *config) hasBandwidthLimit() (bool, error) {
	var limits struct {
		// Bits per second, from the pod's perspective.
		IngressRate float64 `json:"ingressRate"`
		EgressRate  float64 `json:"egressRate"`
	}
	if err := c.capability("bandwidth", &limits); err != nil {
		return false, err
	}
	return limits.IngressRate > 0 || limits.EgressRate > 0, nil
}
