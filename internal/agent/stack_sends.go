package agent

import (
	"github.com/beeline-cni/beeline/internal/agent/lb"
)

// stackSends reports whether the kernel stack sends packets that an uplink must translate: for pods that go through
// it, and as a backend of Services.
func (a *Agent) stackSends() bool {
	for e := range a.endpoints.All() {
		if e.ThroughStack != "" {
			return true
		}
	}
	if a.modes.Services == lb.ModeKubeProxy {
		return true
	}
	return a.services != nil && a.services.BackendLocal()
}

// attachForStack attaches to_wire to the uplinks, from the first pod on that goes through the kernel stack.
func (a *Agent) attachForStack() error {
	if !a.datapath.SetStackSends(true) {
		return nil
	}
	for _, u := range a.uplinks {
		if err := a.datapath.AttachUplink(u.Name, u.Index); err != nil {
			a.datapath.SetStackSends(false) // so that the next call retries
			return err
		}
	}
	return nil
}
