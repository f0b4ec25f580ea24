package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agent/poddevice"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/conflict"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// IPPools gives pods addresses of the cluster's IPPools. It is safe for concurrent use, and needs no lock.
type IPPools interface {
	// Adopt takes over an endpoint of an earlier agent.
	Adopt(p agentapi.Endpoint)
	// Device gives what a pod and its IPPool say about its device.
	Device(ctx context.Context, req agentapi.PrepareRequest) (poddevice.Pod, error)
	// Allocate sets pool and addresses of a new endpoint, unless its pod has an address of the node's range. Commit or
	// Abandon follows.
	Allocate(ctx context.Context, req *agentapi.AddRequest) error
	// Commit says that the endpoint exists; it is an error if its container was deleted meanwhile. Abandon says that the ADD
	// has failed, Release that the endpoint is gone.
	Commit(a agentapi.Attachment) error
	Abandon(a agentapi.Attachment)
	Release(a agentapi.Attachment)
	// Lost gives the reasons why attachments lose their addresses: other pods have them.
	Lost() map[agentapi.Attachment]string
}

// claim gives a new endpoint addresses of an IPPool, if its pod has one. It asks an API server, so the lock is not held.
func (e *Endpoints) claim(ctx context.Context, req *agentapi.AddRequest) error {
	req.Pool, req.StatefulSet, req.Addresses, req.Networks = "", "", nil, nil
	if err := e.beforeClaim(req); err != nil {
		return err
	}
	if err := e.IPPools.Allocate(ctx, req); err != nil {
		return err
	}
	if req.Macvlan != nil && req.Pool == "" {
		return agentapi.Errorf(agentapi.CodeConflict, "pod %s has a macvlan device and no address of an IPPool: its IPPool has changed since the device was made", req.PodName())
	}
	return nil
}

// beforeClaim checks that the node is ready, and forgets the endpoint of a device that was deleted and made anew before the
// agent noticed: the addresses that it has are those of the container.
func (e *Endpoints) beforeClaim(req *agentapi.AddRequest) error {
	e.Lock.Lock()
	defer e.Lock.Unlock()
	if err := e.ready(); err != nil {
		return err
	}
	if old, ok := e.all[req.HostDevice]; ok && old.Pool != "" && old.HostIfIndex != req.HostIfIndex {
		return e.forget(old)
	}
	return nil
}

// allocate gives the addresses of a new endpoint. Those of an IPPool are allocated already.
func (e *Endpoints) allocate(p *agentapi.Endpoint) (err error) {
	if p.Pool == "" {
		p.Addresses, err = e.Pool.Allocate(ownerOf(*p))
		return err
	}
	for _, addr := range p.Addresses {
		if err := e.Pool.Reserve(ownerOf(*p), addr); err != nil {
			e.Pool.Release(p.HostDevice)
			return fmt.Errorf("address of IPPool %s: %w", p.Pool, err)
		}
	}
	return nil
}

// connectPool makes the addresses of an IPPool those of this node: for the other pods, and for the hosts on the uplink's link, which may
// still send to the pod's former node.
func (e *Endpoints) connectPool(p agentapi.Endpoint) error {
	for _, a := range p.Addresses {
		if err := e.addPoolRoute(node.HostPrefix(a)); err != nil {
			return err
		}
	}
	if p.Macvlan != nil {
		return nil // the pod itself answers
	}
	uplink, err := e.poolUplink(p.Pool)
	if err == nil {
		err = e.resolves(p, uplink)
	}
	if err != nil {
		return agentapi.Errorf(agentapi.CodeNotReady, "%v", err)
	}
	if _, err := sysctl.EnableProxy(uplink.Name); err != nil { // a reconciliation may follow too late for the first packet
		return err
	}
	for _, a := range p.Addresses {
		if e.node.RouteSource != nil {
			if err := e.node.RouteSource(p.Pool, a); err != nil {
				return fmt.Errorf("routes of IPPool %s: %w", p.Pool, err)
			}
		}
		if err := neigh.AddProxy(uplink.Index, a); err != nil {
			return err
		}
		// Hosts that miss it find the pod when they ask again.
		if err := conflict.Announce(conflict.Device{Index: uplink.Index, MAC: uplink.MAC}, a); err != nil {
			e.Log.Warn("address not announced", "pod", p.PodName(), "uplink", uplink.Name, "error", err)
		}
	}
	return nil
}

// resolves reports an error if the node cannot resolve neighbours on the VLAN device for a pod whose router it is: its ARP requests need a
// source address that the hosts of the VLAN take for one of theirs.
func (e *Endpoints) resolves(p agentapi.Endpoint, uplink netdev.Uplink) error {
	if pool := e.node.IPPool(p.Pool); pool == nil || pool.VLAN == 0 {
		return nil
	}
	for _, a := range p.Addresses {
		if !slices.ContainsFunc(uplink.Addresses, func(own netip.Prefix) bool { return own.Contains(a) }) {
			return fmt.Errorf("IPPool %s: device %s has no address in the subnet of %s, and needs one to resolve neighbours for pods with %s devices: give it one, or use macvlan", p.Pool, uplink.Name, a, p.Device)
		}
	}
	return nil
}

// addPoolRoute adds the datapath's route to an address. If the table finds no such prefix yet, the next reconciliation adds it; until then
// other pods of the node reach the address through the kernel stack.
func (e *Endpoints) addPoolRoute(p netip.Prefix) error {
	nested, err := e.Datapath.Routes.Nested(p)
	if err != nil {
		return err
	}
	err = e.Datapath.Routes.Change(map[netip.Prefix]fwd.Route{p: node.PoolRoute}, nil, nested)
	if errors.Is(err, fwd.ErrLengths) {
		e.Reconcile()
		return nil
	}
	return err
}

// disconnectPool undoes it.
func (e *Endpoints) disconnectPool(p agentapi.Endpoint) error {
	var routes []netip.Prefix
	var errs []error
	for _, a := range p.Addresses {
		routes = append(routes, node.HostPrefix(a))
		if uplink, err := e.poolUplink(p.Pool); err == nil && p.Macvlan == nil {
			errs = append(errs, neigh.RemoveProxy(uplink.Index, a))
		}
		if p.Macvlan == nil {
			errs = append(errs, route.RemoveFromSource(a))
		}
	}
	return errors.Join(append(errs, e.Datapath.Routes.Change(nil, routes, false))...)
}

// PoolUplink gives this node's device in the network of an IPPool; false if there is none, or it is not known yet.
func (e *Endpoints) PoolUplink(pool string) (netdev.Uplink, bool) {
	e.Lock.Lock()
	defer e.Lock.Unlock()
	uplink, err := e.poolUplink(pool)
	return uplink, err == nil
}

// poolUplink is PoolUplink under the lock, with the reason if there is none. Before the first reconciliation, which sets all that is missing,
// there is none.
func (e *Endpoints) poolUplink(pool string) (netdev.Uplink, error) {
	if e.node.PoolUplink == nil {
		return netdev.Uplink{}, fmt.Errorf("the uplink of IPPool %s is not known yet", pool)
	}
	return e.node.PoolUplink(pool)
}

// DropLost removes the endpoints whose addresses other pods have: this node was taken for dead.
func (e *Endpoints) DropLost() {
	lost := e.IPPools.Lost()
	if len(lost) == 0 {
		return
	}
	for name, p := range e.all {
		reason, is := lost[p.Attachment]
		if !is {
			continue
		}
		e.Log.Error("endpoint removed: its address was given to another pod while this node was taken for dead", "pod", p.PodName(), "device", name, "problem", reason)
		if err := e.remove(name); err != nil {
			e.Log.Error("remove endpoint that has lost its address", "pod", p.PodName(), "error", err)
		}
	}
}
