package endpoint

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/macvlan"
	"github.com/beeline-cni/beeline/internal/device/parent"
	"github.com/beeline-cni/beeline/internal/device/sock"
)

// prepareMacvlan finds the parent of a new macvlan device, and attaches its programs: from then on, the parent drops what a device
// without an endpoint sends.
func (e *Endpoints) prepareMacvlan(pool string) (*agentapi.Preparation, error) {
	if e.Routing != node.RoutingEBPF {
		return nil, agentapi.Errorf(agentapi.CodeNoDevice, "macvlan devices need --routing=%s: the programs of their uplink forward", node.RoutingEBPF)
	}
	e.Lock.Lock()
	_, err := e.findParent(pool)
	e.Lock.Unlock()
	if err != nil {
		return nil, err
	}
	if err := e.LoadParent(); err != nil { // without the lock: other requests do not wait for the verifier
		return nil, fmt.Errorf("programs of macvlan devices: %w", err)
	}
	e.Lock.Lock()
	defer e.Lock.Unlock()
	found, err := e.findParent(pool)
	if err == nil {
		err = e.AttachParent(found.Name, found.Index)
	}
	if err != nil {
		return nil, err
	}
	return &agentapi.Preparation{Device: string(device.Macvlan), Parent: found.Index}, nil
}

// findParent finds the parent of a pool's macvlan devices. The lock is held.
func (e *Endpoints) findParent(pool string) (found parent.Parent, err error) {
	uplink, err := e.poolUplink(pool)
	if err != nil {
		return found, agentapi.Errorf(agentapi.CodeNoDevice, "%v", err)
	}
	found, err = parent.Find(uplink.Name)
	if errors.Is(err, parent.ErrUnsuitable) {
		return found, agentapi.Errorf(agentapi.CodeNoDevice, "IPPool %s: %v", pool, err)
	}
	return found, err
}

// completeMacvlan sets what the pod of a new endpoint with a macvlan device needs to know. The lock is held.
func (e *Endpoints) completeMacvlan(p *agentapi.Endpoint) error {
	uplink, err := e.poolUplink(p.Pool)
	if err != nil || uplink.Index != p.Macvlan.Parent {
		return agentapi.Errorf(agentapi.CodeConflict, "pod %s has a macvlan device on device %d, which is not the uplink of IPPool %s (any more)", p.PodName(), p.Macvlan.Parent, p.Pool)
	}
	// Again: another agent may have prepared it, and this one has begun with the programs of a plain uplink.
	if err := e.AttachParent(uplink.Name, uplink.Index); err != nil {
		return err
	}
	p.Device, p.MTU = string(device.Macvlan), min(p.MTU, uplink.MTU)
	p.Macvlan.Routes = nil
	pool := e.node.IPPool(p.Pool)
	if pool == nil {
		return agentapi.Errorf(agentapi.CodeConflict, "IPPool %s was deleted", p.Pool)
	}
	for _, a := range p.Addresses {
		p.Macvlan.Routes = append(p.Macvlan.Routes, macvlanRoutes(pool, a)...)
	}
	return nil
}

// macvlanRoutes are a pod's routes of the family of an address: to the subnet, then by routers on it. Without a gateway, the node is the
// router to all else.
func macvlanRoutes(pool *cluster.IPPool, a netip.Addr) (routes []agentapi.PodRoute) {
	same := func(other netip.Addr) bool { return other.Is4() == a.Is4() }
	for _, subnet := range pool.Subnets {
		if same(subnet.Addr()) {
			routes = append(routes, agentapi.PodRoute{To: subnet})
		}
	}
	for _, r := range pool.Routes {
		if same(r.Via) {
			routes = append(routes, agentapi.PodRoute{To: r.To, Via: r.Via})
		}
	}
	for _, gateway := range pool.Gateways {
		if same(gateway) {
			unspecified := netip.IPv6Unspecified()
			if a.Is4() {
				unspecified = netip.IPv4Unspecified()
			}
			routes = append(routes, agentapi.PodRoute{To: netip.PrefixFrom(unspecified, 0), Via: gateway})
		}
	}
	return routes
}

// Parents are the parents of the macvlan devices of pods, by index.
func (e *Endpoints) Parents() map[int]bool {
	all := map[int]bool{}
	for _, p := range e.all {
		if p.Macvlan != nil {
			all[p.Macvlan.Parent] = true
		}
	}
	return all
}

// RepairMacvlans gives macvlan devices their mode and MAC back, which a pod with NET_ADMIN can change. The parent's programs drop what a
// device with another MAC sends; another mode shows it group frames of other pods with that mode.
func (e *Endpoints) RepairMacvlans() {
	for _, p := range e.all {
		if p.Macvlan == nil {
			continue
		}
		if reason, err := repairMacvlan(p); err != nil {
			e.Log.Warn("macvlan device not repaired", "pod", p.PodName(), "reason", reason, "error", err)
		} else if reason != nil {
			e.Log.Warn("macvlan device repaired: the pod had changed it", "pod", p.PodName(), "reason", reason)
		}
	}
}

// repairMacvlan says what was different; nil if nothing was.
func repairMacvlan(p agentapi.Endpoint) (reason, err error) {
	inside, spec, err := openMacvlan(p, 0)
	if errors.Is(err, device.ErrPodUnreachable) {
		return nil, nil // the runtime has removed the path: CHECK and DEL are about to notice
	}
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	found, err := macvlan.Locate(inside, spec)
	if err != nil {
		return nil, err
	}
	if reason = found.Check(spec); reason == nil {
		return nil, nil
	}
	return reason, macvlan.Repair(inside, spec)
}

// setMacvlanMTU sets the MTU of the device in the pod, in bytes. Where its parent's is lowered, the kernel lowers that of the device.
func setMacvlanMTU(p agentapi.Endpoint, mtu int) error {
	inside, spec, err := openMacvlan(p, mtu)
	if err != nil {
		return err
	}
	defer inside.Close()
	return macvlan.Repair(inside, spec)
}

// openMacvlan opens the network namespace of a pod, which the caller closes, and gives what its device should be. mtu is in bytes; 0: any.
// A path may lead to another pod's namespace meanwhile: the cookie decides.
func openMacvlan(p agentapi.Endpoint, mtu int) (inside ns.NetNS, spec macvlan.Spec, err error) {
	mac, err := net.ParseMAC(p.PodMAC)
	if err != nil {
		return nil, spec, err
	}
	if inside, err = device.OpenPod(p.Namespace-1, p.Netns); err != nil {
		return nil, spec, err
	}
	var cookie uint64
	err = inside.Do(func(ns.NetNS) (err error) {
		cookie, err = sock.NetnsCookie()
		return err
	})
	if err == nil && cookie != p.Macvlan.NetnsCookie {
		err = fmt.Errorf("%w: %s is another namespace now", device.ErrPodUnreachable, p.Netns)
	}
	if err != nil {
		return nil, spec, errors.Join(err, inside.Close())
	}
	return inside, macvlan.Spec{Parent: p.Macvlan.Parent, Name: p.IfName, MAC: mac, MTU: mtu}, nil
}

// deleteMacvlan deletes the macvlan device of an endpoint. If that fails the device can send nothing: its parent keeps the programs, and
// they do not know its MAC.
func (e *Endpoints) deleteMacvlan(p agentapi.Endpoint) {
	inside, spec, err := openMacvlan(p, 0)
	if err == nil {
		err = errors.Join(macvlan.DeleteMAC(inside, spec.Parent, spec.MAC), inside.Close())
	}
	if err != nil && !errors.Is(err, device.ErrPodUnreachable) {
		e.Log.Warn("macvlan device remains in the pod and can send nothing", "pod", p.PodName(), "error", err)
	}
}

// CloseMacvlans closes the pods with macvlan devices on parents that lack a program, and opens pods on the others.
func (e *Endpoints) CloseMacvlans(lost map[int]error) {
	for name, p := range e.all {
		if p.Macvlan == nil {
			continue
		}
		reason := lost[p.Macvlan.Parent]
		if closed, known := e.closedMacvlans[name]; known && closed == (reason != nil) {
			continue
		}
		inside, spec, err := openMacvlan(p, 0)
		if err == nil {
			err = errors.Join(macvlan.SetProtoDown(inside, spec, reason != nil), inside.Close())
		}
		switch {
		case err != nil && reason != nil:
			e.Log.Error("pod is open: its parent lacks programs and its macvlan device cannot be closed", "pod", p.PodName(), "reason", reason, "error", err)
			continue // and again
		case err != nil && !errors.Is(err, device.ErrPodUnreachable) && !errors.Is(err, unix.ENODEV):
			e.Log.Warn("pod may remain closed: its macvlan device cannot be opened", "pod", p.PodName(), "error", err)
			continue // and again
		case reason != nil:
			e.Log.Warn("pod is closed: the parent of its macvlan device lacks programs", "pod", p.PodName(), "reason", reason)
		}
		e.closedMacvlans[name] = reason != nil
	}
	maps.DeleteFunc(e.closedMacvlans, func(name string, _ bool) bool { return !e.Has(name) })
}

// packetsFrom is device.Pods.PacketsFrom for devices of all kinds: the host end of a macvlan device counts nothing.
func (e *Endpoints) packetsFrom(hostDevice string) (packets uint64, ok bool) {
	p := e.all[hostDevice]
	if p.Macvlan == nil {
		return device.Pods.PacketsFrom(hostDevice)
	}
	inside, spec, err := openMacvlan(p, 0)
	if err != nil {
		return 0, false
	}
	defer inside.Close()
	return macvlan.PacketsFrom(inside, spec)
}
