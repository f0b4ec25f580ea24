package cni

import "fmt"

// Who forwards the packets of a network's pods: the values of the field "routing", which mean what those of the
// agent's flag --routing do. Without one the pods go directly, but for those that need the host's stack.
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

// throughStack says why the pod's packets have to go through the host's stack, in a few words; empty if they need
// not. What the plugin bandwidth is going to do for the pod works on the stack's way only. The
// runtime tells of it when the configuration declares the capability, as that plugin's does.
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

// hasBandwidthLimit tells whether there is a limit: a rate of 0 is none.
func (c *config) hasBandwidthLimit() (bool, error) {
	var limits struct {
		// Bits each second, as seen from the pod.
		IngressRate float64 `json:"ingressRate"`
		EgressRate  float64 `json:"egressRate"`
	}
	if err := c.capability("bandwidth", &limits); err != nil {
		return false, err
	}
	return limits.IngressRate > 0 || limits.EgressRate > 0, nil
}
