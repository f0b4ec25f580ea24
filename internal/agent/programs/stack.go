package programs

import (
	"github.com/beeline-cni/beeline/internal/agent/endpoint"
)

// stackSends reports whether the kernel stack sends packets that an uplink must translate: for pods that go through
// it, and as a backend of Services.
func (p *Programs) stackSends(endpoints *endpoint.Endpoints) bool {
	return p.KubeProxy || endpoints.ThroughStack() || p.Services != nil && p.Services.BackendLocal()
}

// AttachForStack attaches to_wire to the uplinks, from the first pod on that goes through the kernel stack.
func (p *Programs) AttachForStack() error {
	if !p.Datapath.SetStackSends(true) {
		return nil
	}
	for _, u := range p.uplinks {
		if err := p.attachWire(u.Name, u.Index); err != nil {
			p.Datapath.SetStackSends(false) // so that the next call retries
			return err
		}
	}
	return nil
}
