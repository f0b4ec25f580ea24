package programs

import (
	"errors"
	"maps"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/ipseckeys"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
)

func (p *Programs) syncIPsec(f node.Facts) node.Encryption {
	if p.tunnels == nil {
		p.tunnels = ipseckeys.New(ipseckeys.Config{Node: f.Config.NodeName, Keys: f.Config.IPsecKeys, Ledger: f.Config.IPsecState})
	}
	in, wrong := f.IPsecPeers()
	in.Now = time.Now()
	e, plan, err := p.makeTunnels(f, in)
	if errors.Is(err, ipsec.ErrTaken) || errors.Is(err, ipsec.ErrGone) { // by chance, or by another program: other keys have other SPIs
		if err = p.tunnels.Renew(); err == nil {
			e, plan, err = p.makeTunnels(f, in)
		}
	}
	if err != nil {
		return node.Encryption{Missing: err}
	}
	maps.Copy(wrong, plan.Wrong)
	e.Wrong, e.Problem, e.Tunnels = wrong, plan.Problem, plan.Named
	p.Announce(cluster.Announced{IPsec: plan.Announce.String()})
	return e
}

// makeTunnels plans the tunnels and makes them.
func (p *Programs) makeTunnels(f node.Facts, in ipseckeys.Input) (e node.Encryption, plan ipseckeys.Plan, err error) {
	present, err := ipsec.ReadStates()
	if err != nil {
		return e, plan, err
	}
	in.Has = present.Has
	if plan, err = p.tunnels.Plan(in); err != nil {
		return e, plan, err
	}
	spec := f.IPsecSpec(plan.Peers)
	done, err := ipsec.Sync(present, spec, p.attachEncryption(node.EncryptionIPsec))
	if err != nil {
		return e, plan, err
	}
	for name, err := range done.Refused {
		plan.Wrong[name] = err.Error()
		delete(plan.Named, name)
	}
	if done.Made {
		p.Log.Info("XFRM interface created", "device", ipsec.Name, "mtu", spec.MTU, "peers", len(spec.Peers))
	}
	return node.Encryption{Index: done.Index}, plan, p.tunnels.NotMade(done.Refused)
}
