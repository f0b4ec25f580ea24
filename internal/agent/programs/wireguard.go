package programs

import (
	"github.com/beeline-cni/beeline/internal/agent/encryption"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

func (p *Programs) syncWireGuard(f node.Facts) node.Encryption {
	spec, needed := f.EncryptionSpec()
	if !needed {
		return node.Encryption{}
	}
	if err := p.loadKey(f.Config.WireGuardKey); err != nil {
		return node.Encryption{Missing: err}
	}
	spec.PrivateKey = p.key
	index, made, err := wireguard.Sync(spec, p.attachEncryption(node.EncryptionWireGuard))
	if err != nil {
		return node.Encryption{Missing: err}
	}
	if made {
		p.Log.Info("WireGuard device created", "device", wireguard.Name, "port", spec.Port, "mtu", spec.MTU, "peers", len(spec.Peers))
	}
	p.Announce(cluster.Announced{WireGuardKey: p.key.PublicKey().String()})
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
