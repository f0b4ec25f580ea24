package agent

import (
	"github.com/beeline-cni/beeline/internal/device/vxlan"
)

// forgetDetached checks that the programs of this agent are still attached; the kernel does not notify of it. Devices
// without one are attached again by the next reconciliation.
func (a *Agent) forgetDetached() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, index := range a.attached {
		if err := a.checkAttached(name, index); err != nil {
			a.log.Warn("programs are gone and are attached again", "device", name, "reason", err)
			delete(a.attached, name)
		}
	}
	if !a.socketsAttached {
		return
	}
	if err := a.datapath.CheckSockets(); err != nil {
		a.log.Warn("programs of sockets are gone and are attached again", "reason", err)
		a.socketsAttached = false
	}
}

func (a *Agent) checkAttached(name string, index int) error {
	if _, isPod := a.endpoints[name]; isPod {
		return a.datapath.CheckPod(name, index)
	}
	if name == vxlan.Name {
		return a.datapath.CheckTunnel(name, index)
	}
	return a.datapath.CheckUplink(name, index)
}
