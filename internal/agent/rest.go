package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/policy"
)

// restAfter is how long no pod must have been added before the programs that nobody waits for are attached: each takes some 10 ms, in
// which other pods could be. restAtLast is how long that can go on.
const (
	restAfter  = 500 * time.Millisecond
	restAtLast = 2 * time.Second
)

// rest attaches the programs of pods' devices: those that a pod cannot be without when it is added, and the others later, unless
// policies are about what is sent to it. Its lock may be taken while that of the agent is held, or that of a pass of policies.
type rest struct {
	log  *slog.Logger
	wake chan struct{} // room for one
	// first and others attach programs: see datapath.AttachPod and AttachPodRest. exists tells whether a device is still there.
	first, others func(name string, index int) error
	exists        func(name string, index int) bool

	mu      sync.Mutex
	devices map[string]*podDevice
	// guarded are the sets of rules that are in force, or about to be.
	guarded map[netip.Addr]policy.Sets
}

// podDevice is a device of a pod. sends says that it has the program for what the pod sends, which no pod can be without, and all that it
// has every one.
type podDevice struct {
	index      int
	addresses  []netip.Addr
	sends, all bool
}

func newRest(first, others func(name string, index int) error, log *slog.Logger) *rest {
	return &rest{log: log, wake: make(chan struct{}, 1), first: first, others: others, exists: isHostDevice, devices: map[string]*podDevice{}}
}

func isHostDevice(name string, index int) bool {
	host, ok, err := device.FindHost(name)
	return err != nil || ok && host.Index == index
}

// later has the others attached when it is quiet.
func (r *rest) later() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// add attaches the first programs of the device of a pod that is being added, and all of them if policies are about what is sent to the
// pod. The others follow.
func (r *rest) add(e agentapi.Endpoint) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, err := r.begin(e)
	if ingress, _ := d.governed(r.guarded); err != nil || !ingress {
		return err
	}
	return r.complete(e.HostDevice, d)
}

// renew does the same at the device of a pod that is there already. If it gives lacks, a program is missing that policies need: guard says
// what becomes of the pod. Only without the first programs there is an error.
func (r *rest) renew(e agentapi.Endpoint) (lacks bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, err := r.begin(e)
	if ingress, _ := d.governed(r.guarded); err == nil && ingress {
		_ = r.complete(e.HostDevice, d) // guard tries again, and says why not
	}
	return d.lacks(r.guarded), err
}

// begin attaches the first programs. The device is known from here on, with them or without.
func (r *rest) begin(e agentapi.Endpoint) (*podDevice, error) {
	d := &podDevice{index: e.HostIfIndex, addresses: e.Addresses}
	r.devices[e.HostDevice] = d
	err := r.first(e.HostDevice, e.HostIfIndex)
	_, egress := missing(err)
	d.sends = egress == nil
	return d, err
}

// missing parts the error of attaching programs by the packets that these judge: to the pod, and from it.
func missing(err error) (ingress, egress error) {
	var of *datapath.PodError
	if errors.As(err, &of) {
		return of.Ingress, of.Egress
	}
	return err, err
}

// drop forgets a device: nothing is attached to it from here on.
func (r *rest) drop(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.devices, name)
}

// guard attaches what these sets need and is missing at pods' devices, before they are put into force. Where that fails, packets of the pod
// are not judged; it gives those pods by their addresses.
func (r *rest) guard(sets map[netip.Addr]policy.Sets) map[netip.Addr]unguarded {
	r.mu.Lock()
	r.guarded = sets
	r.mu.Unlock()
	pods := map[netip.Addr]unguarded{}
	for _, name := range r.lacking(func(d *podDevice) bool { return d.lacks(sets) }) {
		addresses, err := r.finish(name)
		u := unguarded{device: name}
		u.ingress, u.egress = missing(err)
		ingress, egress := governed(addresses, sets)
		if !ingress {
			u.ingress = nil
		}
		if !egress {
			u.egress = nil
		}
		if u.ingress == nil && u.egress == nil {
			continue
		}
		for _, a := range addresses {
			pods[a] = u
		}
	}
	return pods
}

// governed tells whether sets say something about what is sent to a pod with these addresses, and about what it sends.
func governed(addresses []netip.Addr, sets map[netip.Addr]policy.Sets) (ingress, egress bool) {
	for _, a := range addresses {
		ingress = ingress || sets[a].Ingress != policy.NotIsolated
		egress = egress || sets[a].Egress != policy.NotIsolated
	}
	return ingress, egress
}

func (d *podDevice) governed(sets map[netip.Addr]policy.Sets) (ingress, egress bool) {
	return governed(d.addresses, sets)
}

// lacks tells whether a device may lack a program that sets need.
func (d *podDevice) lacks(sets map[netip.Addr]policy.Sets) bool {
	ingress, egress := d.governed(sets)
	return ingress && !d.all || egress && !d.sends
}

// isWhole tells whether a device has had all programs attached.
func (r *rest) isWhole(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.devices[name]
	return d != nil && d.all
}

// lacking lists the devices that lack something, of some.
func (r *rest) lacking(of func(*podDevice) bool) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, d := range r.devices {
		if !d.all && of(d) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// finish attaches the others at one device, if it is still a pod's: each by itself, so that requests come between.
func (r *rest) finish(name string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.devices[name]
	if d == nil || d.all {
		return nil, nil
	}
	return d.addresses, r.complete(name, d)
}

func (r *rest) complete(name string, d *podDevice) error {
	err := r.others(name, d.index)
	if err != nil && !r.exists(name, d.index) {
		return nil // the pod has just ended
	}
	_, egress := missing(err)
	d.sends, d.all = egress == nil, err == nil
	return err
}

// run attaches the others whenever it is quiet, until ctx ends.
func (r *rest) run(ctx context.Context) error {
	var due, atLast <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			due = time.After(restAfter)
			if atLast == nil {
				atLast = time.After(restAtLast)
			}
			continue
		case <-due:
		case <-atLast:
		}
		due, atLast = nil, nil
		for _, name := range r.lacking(func(*podDevice) bool { return true }) {
			if _, err := r.finish(name); err != nil {
				r.log.Warn("a pod lacks a program until the next attempt", "device", name, "error", err)
			}
		}
	}
}

// stackSends tells whether the host's stack sends anything that has to be translated at an uplink: for pods that go through it, and as
// a backend of Services.
func (a *Agent) stackSends() bool {
	for _, e := range a.endpoints {
		if e.ThroughStack != "" {
			return true
		}
	}
	if a.ways.services == ServicesKubeProxy {
		return true
	}
	return a.services != nil && a.services.backendHere.Load()
}

// attachForStack has the uplinks translate what the stack sends, from the first pod on that goes through it.
func (a *Agent) attachForStack() error {
	if !a.datapath.SetStackSends(true) {
		return nil
	}
	for _, u := range a.uplinks {
		if err := a.datapath.AttachUplink(u.Name, u.Index); err != nil {
			a.datapath.SetStackSends(false) // so that the next one tries again
			return err
		}
	}
	return nil
}
