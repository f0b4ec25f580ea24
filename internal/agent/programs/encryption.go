package programs

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/agent/encryption"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

// errNoUplink keeps the WireGuard device and the published key while the uplink is away: a cable, or a restart of the
// network, must not have all other nodes forget this one.
var errNoUplink = errors.New("there is no uplink")

// SyncEncryption makes the WireGuard device and its peers, with its program attached before the first packet, and
// publishes this node's public key once the device takes packets. An unneeded device is removed last: see apply.
func (p *Programs) SyncEncryption(f node.Facts) node.Encryption {
	if f.Config.Encryption == node.EncryptionWireGuard && f.Uplink == nil {
		return node.Encryption{Missing: errNoUplink}
	}
	spec, needed := f.EncryptionSpec()
	if !needed {
		return node.Encryption{}
	}
	if err := p.loadKey(f.Config.WireGuardKey); err != nil {
		return node.Encryption{Missing: err}
	}
	spec.PrivateKey = p.key
	index, made, err := wireguard.Sync(spec, func(index int) error {
		if err := p.Datapath.AttachWireguard(wireguard.Name, index); err != nil {
			return err
		}
		p.attached[wireguard.Name] = index
		return nil
	})
	if err != nil {
		return node.Encryption{Missing: err}
	}
	if made {
		p.Log.Info("WireGuard device created", "device", wireguard.Name, "port", spec.Port, "mtu", spec.MTU, "peers", len(spec.Peers))
	}
	p.PublishKey(p.key.PublicKey().String())
	return node.Encryption{Index: index}
}

// loadKey loads the private key once: an agent keeps its key.
func (p *Programs) loadKey(file string) error {
	if p.key != (wireguard.Key{}) {
		return nil
	}
	key, made, err := encryption.LoadKey(file)
	if err != nil {
		return err
	}
	if made {
		p.Log.Info("private key of WireGuard made", "file", file, "public key", key.PublicKey().String())
	}
	p.key = key
	return nil
}

// RemoveEncryption removes the WireGuard device that no route uses any more, and then its program.
func (p *Programs) RemoveEncryption(want node.Desired) error {
	if want.Encryption.Index != 0 || want.Encryption.Missing != nil {
		return nil
	}
	p.PublishKey("")
	removed, err := wireguard.Remove()
	if err != nil || !removed {
		return err
	}
	delete(p.attached, wireguard.Name)
	return p.Datapath.Detach(wireguard.Name)
}
