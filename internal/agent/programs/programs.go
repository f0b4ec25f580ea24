// Package programs keeps the programs attached to uplinks, the tunnel device and sockets. Those of pods' devices are
// attached with the endpoints.
package programs

import (
	"errors"
	"log/slog"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/ipseckeys"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

// Options are what Programs depend on.
type Options struct {
	Datapath *attach.Attacher
	// Commit pins the maps in use, when every device of the node has its programs.
	Commit func() error
	// Announce tells other nodes what they need to encrypt to this one.
	Announce func(cluster.Announced)
	// Encryption of packets between nodes.
	Encryption node.EncryptionMode
	// KubeProxy says that the kernel stack translates Services.
	KubeProxy bool
	// Services is nil where the datapath does not translate Services.
	Services *lb.Services
	Log      *slog.Logger
}

// Programs are the programs of one node. The caller of a method holds the node's lock.
type Programs struct {
	Options
	uplinks []netdev.Uplink
	// attached are the uplinks and the tunnel device with this agent's programs, by name, with their index.
	attached map[string]int
	// accelerated is where each uplink forwards.
	accelerated map[string]acceleration
	// parents are the devices that macvlan devices of pods are on, were on, or are about to be, by index. parentsFound says that those of
	// earlier agents are among them. tried is set when programs are attached for the first time.
	parents             map[int]bool
	parentsFound, tried bool
	// key is the private key of WireGuard; zero until it is needed. tunnels are those of IPsec; nil until they are needed.
	key     wireguard.Key
	tunnels *ipseckeys.Tunnels
	// sockets says that the programs of sockets are attached, or not wanted.
	sockets bool
}

// New makes Programs, of which none is attached.
func New(o Options) *Programs {
	return &Programs{Options: o, attached: map[string]int{}, accelerated: map[string]acceleration{}, parents: map[int]bool{}}
}

// Update takes over the external devices.
func (p *Programs) Update(uplinks []netdev.Uplink) { p.uplinks = uplinks }

// Attach attaches the programs to all devices, with those of endpoints, and to sockets. tunnel and encrypted are
// the indexes of the VXLAN device and of the one that encrypts; 0 without.
func (p *Programs) Attach(endpoints *endpoint.Endpoints, tunnel, encrypted int) error {
	return errors.Join(p.attach(endpoints, tunnel, encrypted), p.attachSockets())
}

// attach attaches the current programs to every device that needs them and detaches them from the others. It does so
// once for each device, until ForgetDetached finds them detached. Pods that lack a program are closed, and keep no other from the
// rest: see failclosed and RestoreParents.
func (p *Programs) attach(endpoints *endpoint.Endpoints, tunnel, encrypted int) error {
	ofPods := endpoints.Attach()
	ofMacvlans, err := p.attachNode(endpoints, tunnel, encrypted)
	return errors.Join(ofPods, ofMacvlans, err)
}

// attachNode does so for the devices of the node, and commits. ofMacvlans is what only macvlan devices of pods lack.
func (p *Programs) attachNode(endpoints *endpoint.Endpoints, tunnel, encrypted int) (ofMacvlans, err error) {
	var errs []error
	wanted := map[string]bool{}
	attachTo := func(name string, index int, put func(name string, index int) error) {
		wanted[name] = true
		if p.attached[name] == index {
			return
		}
		switch err := put(name, index); {
		case errors.Is(err, attach.ErrMacvlan):
			ofMacvlans = errors.Join(ofMacvlans, err)
		case err != nil:
			errs = append(errs, err)
		default:
			p.attached[name] = index
		}
	}
	if p.Datapath.SetStackSends(p.stackSends(endpoints)) {
		for _, u := range p.uplinks {
			delete(p.attached, u.Name)
		}
	}
	errs = append(errs, p.takeParents(endpoints))
	p.tried = true
	for _, u := range p.uplinks {
		attachTo(u.Name, u.Index, p.attachUplink)
	}
	for _, parent := range p.otherParents() {
		attachTo(parent.Name, parent.Index, p.Datapath.AttachParent)
	}
	if tunnel != 0 {
		attachTo(vxlan.Name, tunnel, p.Datapath.AttachTunnel)
	}
	if encrypted != 0 {
		attachTo(p.Encryption.Device(), encrypted, p.Datapath.AttachEncryption)
	}
	if err := errors.Join(errs...); err != nil {
		return ofMacvlans, err // nothing is detached before everything is attached
	}
	present, err := p.Datapath.Attachments()
	if err != nil {
		return ofMacvlans, err
	}
	for _, at := range present {
		// The programs stay on the tunnel devices as long as these exist: without them they would accept packets of
		// anyone. RemoveTunnel and RemoveEncryption detach them.
		if !wanted[at.Device] && !endpoints.Has(at.Device) && !netdev.IsTunnel(at.Device) {
			errs = append(errs, p.Datapath.Detach(at.Device))
			delete(p.attached, at.Device)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ofMacvlans, err
	}
	return ofMacvlans, p.Commit()
}

// attachUplink attaches the programs to an external device; if its driver cannot forward, at tc.
func (p *Programs) attachUplink(name string, index int) error {
	wire := p.attachWire(name, index)
	if wire != nil && !errors.Is(wire, attach.ErrMacvlan) {
		return wire
	}
	got, err := p.Datapath.Accelerate(name, index)
	if err != nil && got.Hook == "" {
		return err
	}
	p.accelerated[name] = acceleration{got, err}
	return wire
}

// attachSockets attaches the programs to sockets once Services are in the tables.
func (p *Programs) attachSockets() error {
	if p.Services != nil && !p.Services.Filled() || p.sockets {
		return nil
	}
	if err := p.Datapath.AttachSockets(); err != nil {
		return err
	}
	p.sockets = true
	return nil
}

// ForgetDetached checks that the programs are still attached; the kernel does not notify of it. The next Attach
// restores them.
func (p *Programs) ForgetDetached() {
	for name, index := range p.attached {
		if err := p.checkAttached(name, index); err != nil {
			p.Log.Warn("programs are gone and are attached again", "device", name, "reason", err)
			delete(p.attached, name)
		}
	}
	if !p.sockets {
		return
	}
	if err := p.Datapath.CheckSockets(); err != nil {
		p.Log.Warn("programs of sockets are gone and are attached again", "reason", err)
		p.sockets = false
	}
}

func (p *Programs) checkAttached(name string, index int) error {
	switch {
	case name == vxlan.Name:
		return p.Datapath.CheckTunnel(name, index)
	case name == wireguard.Name || name == ipsec.Name:
		return p.Datapath.CheckEncryption(name, index)
	case p.parents[index]:
		return p.Datapath.CheckParent(name, index)
	}
	return p.Datapath.CheckUplink(name, index)
}
