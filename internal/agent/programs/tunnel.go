package programs

import (
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
)

// SyncTunnel makes the VXLAN device if one is needed, with its programs attached before the first packet. A failure
// is a problem of the nodes behind it only. An unneeded device is removed last: see apply.
func (p *Programs) SyncTunnel(f node.Facts) node.Tunnel {
	spec, needed := f.TunnelSpec()
	if !needed {
		return node.Tunnel{}
	}
	index, made, err := vxlan.Sync(spec, func(index int) error {
		if err := p.Datapath.AttachTunnel(vxlan.Name, index); err != nil {
			return err
		}
		p.attached[vxlan.Name] = index
		return nil
	})
	if err != nil {
		return node.Tunnel{Missing: err}
	}
	if made {
		p.Log.Info("tunnel device created", "device", vxlan.Name, "port", spec.Port, "mtu", spec.MTU)
	}
	return node.Tunnel{Index: index, Made: made}
}

// RemoveTunnel removes the VXLAN device that no route uses any more, and then its programs.
func (p *Programs) RemoveTunnel(want node.Desired) error {
	if want.Tunnel.Index != 0 || want.Tunnel.Missing != nil {
		return nil
	}
	if _, err := vxlan.Remove(); err != nil {
		return err
	}
	delete(p.attached, vxlan.Name)
	return p.Datapath.Detach(vxlan.Name)
}
