// Package failclosed keeps a pod closed while it lacks a program that enforces NetworkPolicies.
//
// A new pod gets all programs or is not added. A pod of an earlier agent can lack one: somebody else holds its hook, or its pin is
// gone. What the programs do not check, the kernel must not forward: routing rules close the pod in that direction until the program
// is attached. A pod that no policy selects is closed for what it sends, because no program checks its source addresses, by which the
// policies of other pods know it; before policies are known, it is closed in both directions.
package failclosed

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Pod is a pod's device and the pod's addresses.
type Pod struct {
	Device    string
	Index     int
	Addresses []netip.Addr
}

// Kernel is what Pods changes.
type Kernel struct {
	// Attach puts all programs on a device: see datapath.AttachPod.
	Attach func(name string, index int) error
	// Exists says whether a device is still there.
	Exists func(name string, index int) bool
	// SyncClosed closes these pods and opens all others; with keep it opens none: see route.SyncBlackholes.
	SyncClosed func(closed route.Blackholes, keep bool) (changed int, err error)
}

// Pods attaches the programs of pods' devices and closes the pods that lack one. Callers may hold the agent's lock or that of a policy
// pass.
type Pods struct {
	kernel Kernel
	// enforcing says that this agent enforces policies. If not, no pod is closed.
	enforcing bool
	rules     rules
	// updating is held by all that write rules: what began before the end of the adoption, and so without all pods, opens none.
	updating sync.Mutex

	mu      sync.Mutex
	devices map[string]*podDevice
	// enforced are the sets that are active or about to be; nil before the first Update.
	enforced map[netip.Addr]policy.Sets
}

// podDevice is a device of a pod. ingress and egress say why a program is missing; both are nil on a complete device.
type podDevice struct {
	Pod
	ingress, egress error
	// attached says that this agent has attached all programs, and not found one detached since.
	attached bool
}

// New makes a Pods that knows no device yet. enforcing says that this agent enforces policies.
func New(kernel Kernel, enforcing bool, log *slog.Logger) *Pods {
	return &Pods{kernel: kernel, enforcing: enforcing, rules: rules{log: log, sync: kernel.SyncClosed}, devices: map[string]*podDevice{}}
}

// Node gives the kernel of this node, with attach for the programs.
func Node(attach func(name string, index int) error) Kernel {
	return Kernel{Attach: attach, Exists: isHostDevice, SyncClosed: route.SyncBlackholes}
}

func isHostDevice(name string, index int) bool {
	host, ok, err := device.Pods.HostEnd(name)
	return err != nil || ok && host.Index == index
}

// Add attaches all programs to a device. A pod that lacks one is known from here on, and the error says why.
func (p *Pods) Add(pod Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &podDevice{Pod: pod}
	p.devices[pod.Device] = d
	return p.attachTo(d)
}

// Adopt does the same for a pod that is there already. If lacks is true, the pod is closed because it needs the missing program.
func (p *Pods) Adopt(pod Pod) (lacks bool, err error) {
	p.updating.Lock()
	defer p.updating.Unlock()
	err = p.Add(pod)
	missing := p.lacking(false)
	for _, a := range pod.Addresses {
		lacks = lacks || missing[a].Device == pod.Device
	}
	return lacks, errors.Join(err, p.rules.set(closedFor(missing)))
}

// Attached reports whether a device has the programs of this agent, as far as it knows.
func (p *Pods) Attached(name string, index int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.devices[name]
	return d != nil && d.Index == index && d.attached
}

// ForgetDetached checks that the programs are still attached; the kernel does not notify of it.
func (p *Pods) ForgetDetached(check func(name string, index int) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, d := range p.devices {
		if !d.attached {
			continue
		}
		if err := check(name, d.Index); err != nil {
			p.rules.log.Warn("programs are gone and are attached again", "device", name, "reason", err)
			d.ingress, d.egress, d.attached = err, err, false
		}
	}
}

// Remove forgets a device: nothing is attached to it any more. Its addresses are not closed for a later pod.
func (p *Pods) Remove(name string) {
	p.updating.Lock()
	defer p.updating.Unlock()
	p.mu.Lock()
	delete(p.devices, name)
	p.mu.Unlock()
	if err := p.rules.set(closedFor(p.lacking(false))); err != nil {
		p.rules.log.Error("routing rules of a deleted pod remain until the next reconciliation", "device", name, "error", err)
	}
}

// Update prepares for sets before they are active: it attaches the programs that they need, and closes the pods where that fails. It
// returns those pods by their addresses.
func (p *Pods) Update(sets map[netip.Addr]policy.Sets) map[netip.Addr]Missing {
	p.updating.Lock()
	defer p.updating.Unlock()
	p.mu.Lock()
	p.enforced = sets
	p.mu.Unlock()
	missing := p.lacking(true)
	if err := p.rules.set(closedFor(missing)); err != nil {
		for a, m := range missing {
			m.Open = err
			missing[a] = m
		}
	}
	return missing
}

// lacking lists the pods that lack a program which they need; none where policies are not enforced. With retry it attaches what is
// missing first.
func (p *Pods) lacking(retry bool) map[netip.Addr]Missing {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[netip.Addr]Missing{}
	if !p.enforcing {
		return all
	}
	for _, d := range p.devices {
		m := d.missing(p.enforced)
		if m != nil && retry {
			_ = p.attachTo(d)
			m = d.missing(p.enforced)
		}
		if m == nil || !p.kernel.Exists(d.Device, d.Index) { // it is complete, or the pod has just ended
			continue
		}
		for _, a := range d.Addresses {
			all[a] = *m
		}
	}
	return all
}

// AdoptionDone allows to open what an earlier agent closed and this one does not need closed.
func (p *Pods) AdoptionDone() {
	p.updating.Lock()
	defer p.updating.Unlock()
	p.rules.adoptionDone()
}

// Reconcile restores the rules that somebody else removed. Where policies are not enforced, it opens all pods.
func (p *Pods) Reconcile() error { return p.rules.renew(!p.enforcing) }

func (p *Pods) attachTo(d *podDevice) error {
	err := p.kernel.Attach(d.Device, d.Index)
	d.ingress, d.egress, d.attached = err, err, err == nil
	var of *attach.PodError
	if errors.As(err, &of) {
		d.ingress, d.egress = of.Ingress, of.Egress
	}
	return err
}

// missing names the programs that a device needs and lacks; nil if none. Sets that are nil are not known yet.
func (d *podDevice) missing(sets map[netip.Addr]policy.Sets) *Missing {
	m := Missing{Device: d.Device, Egress: d.egress}
	if sets == nil || slices.ContainsFunc(d.Addresses, func(a netip.Addr) bool { return sets[a].Ingress != policy.NotIsolated }) {
		m.Ingress = d.ingress
	}
	if m.Ingress == nil && m.Egress == nil {
		return nil
	}
	return &m
}
