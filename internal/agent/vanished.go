package agent

import (
	"github.com/beeline-cni/beeline/internal/device/vxlan"
)

// forgetVanished checks what the kernel and the runtime do not notify of: that the programs of this agent are still
// attached, and that pods still exist. Devices without a program get it from the next reconciliation.
func (a *Agent) forgetVanished() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endpoints.DropForgotten(a.source, a.snapshot)
	a.endpoints.ForgetDetached()
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
	if name == vxlan.Name {
		return a.datapath.CheckTunnel(name, index)
	}
	return a.datapath.CheckUplink(name, index)
}
