package programs

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

// errNoUplink keeps the device that encrypts and the published key while the uplink is away: a cable, or a restart of the
// network, must not have all other nodes forget this one.
var errNoUplink = errors.New("there is no uplink")

// SyncEncryption makes the device that encrypts and its peers, with its program attached before the first packet, and
// announces what other nodes need once the device takes packets. An unneeded device is removed last: see apply.
func (p *Programs) SyncEncryption(f node.Facts) node.Encryption {
	switch {
	case !f.Config.Encryption.On():
		return node.Encryption{}
	case f.Uplink == nil:
		return node.Encryption{Missing: errNoUplink}
	case f.Config.Encryption == node.EncryptionIPsec:
		return p.syncIPsec(f)
	}
	return p.syncWireGuard(f)
}

// attachEncryption attaches the program to the device that encrypts.
func (p *Programs) attachEncryption(mode node.EncryptionMode) func(index int) error {
	return func(index int) error {
		if err := p.Datapath.AttachEncryption(mode.Device(), index); err != nil {
			return err
		}
		p.attached[mode.Device()] = index
		return nil
	}
}

// RemoveEncryption removes devices that no route uses any more, and then their programs.
func (p *Programs) RemoveEncryption(want node.Desired) error {
	used := want.Encryption.Index != 0 || want.Encryption.Missing != nil
	if !used {
		p.Announce(cluster.Announced{})
	}
	var errs []error
	for mode, remove := range map[node.EncryptionMode]func() (bool, error){node.EncryptionWireGuard: wireguard.Remove, node.EncryptionIPsec: ipsec.Remove} {
		if used && mode == p.Encryption {
			continue
		}
		removed, err := remove()
		errs = append(errs, err)
		if err == nil && removed {
			delete(p.attached, mode.Device())
			errs = append(errs, p.Datapath.Detach(mode.Device()))
		}
	}
	return errors.Join(errs...)
}
