package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/ipam"
)

// Add makes an endpoint of a pod device that the plugin has created.
func (a *Agent) Add(ctx context.Context, req agentapi.AddRequest) (_ *agentapi.AddResponse, err error) {
	begin := time.Now()
	defer func() { a.metrics.requested("add", time.Since(begin), err) }()
	if err := validate(req); err != nil {
		return nil, err
	}
	e, closed, err := a.add(ctx, req)
	if err != nil {
		return nil, err
	}
	if closed != 0 {
		if err := a.policies.PassAt(closed); err != nil {
			a.log.Error("pod stays isolated until NetworkPolicies can be written", "pod", e.PodName(), "error", err)
		}
	}
	if len(e.PortMappings) > 0 {
		if err := a.openPorts(e); err != nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			return nil, errors.Join(err, a.forget(e))
		}
	}
	a.log.Info("endpoint added", "pod", e.PodName(), "addresses", e.Addresses, "device", e.HostDevice, "took", time.Since(begin))
	return response(e), nil
}

// add makes an endpoint, except for its host ports and its policies, which do not need the agent's lock; closed is as
// in closeUntilKnown.
func (a *Agent) add(ctx context.Context, req agentapi.AddRequest) (e agentapi.Endpoint, closed uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure != nil {
		return e, 0, agentapi.Errorf(agentapi.CodeNotReady, "node %s is not ready: %v", a.config.NodeName, a.failure)
	}
	if err := ctx.Err(); err != nil {
		return e, 0, err
	}
	// First of all: after the client of a request has given up, its device may be gone and the name reused.
	host, ok, err := device.Pods.HostEnd(req.HostDevice)
	if err != nil {
		return e, 0, err
	}
	if !ok || host.Index != req.HostIfIndex {
		return e, 0, agentapi.Errorf(agentapi.CodeInvalid, "hostDevice: there is no device %s with index %d on this node", req.HostDevice, req.HostIfIndex)
	}
	if old, ok := a.endpoints[req.HostDevice]; ok && old.HostIfIndex != req.HostIfIndex {
		// The device was deleted and made anew before the agent noticed.
		if err := a.forget(old); err != nil {
			return e, 0, err
		}
	} else if ok {
		return e, 0, agentapi.Errorf(agentapi.CodeConflict, "container %s has an endpoint for %s already: %v", req.ContainerID, req.IfName, old.Addresses)
	}
	if err := a.checkPorts(req); err != nil {
		return e, 0, err
	}
	e = agentapi.Endpoint{
		Attachment:   req.Attachment,
		Network:      req.Network,
		Pod:          req.Pod,
		Netns:        req.Netns,
		HostDevice:   req.HostDevice,
		HostIfIndex:  req.HostIfIndex,
		HostMAC:      req.HostMAC,
		PodMAC:       req.PodMAC,
		MTU:          a.current.MTU,
		Namespace:    host.NetnsID + 1,
		ThroughStack: a.throughStack(req),
		Added:        a.nextAdded(time.Now()),
	}
	if a.paths.services == lb.ModeEBPF {
		e.PortMappings = req.PortMappings
	}
	e.Addresses, err = a.pool.Allocate(ownerOf(e))
	if err != nil {
		return e, 0, allocationError(err)
	}
	// Registered from here on: what forget cannot undo now is retried after the plugin has deleted the device.
	a.endpoints[e.HostDevice] = e
	defer func() {
		if err != nil {
			err = errors.Join(err, a.forget(e))
		}
	}()
	if err := a.expiry.Clear(e.Addresses); err != nil {
		return e, 0, err
	}
	if err := a.store.save(e); err != nil {
		return e, 0, err
	}
	if closed, err = a.connect(e); err != nil {
		return e, 0, fmt.Errorf("connect pod %s: %w", e.PodName(), err)
	}
	return e, closed, nil
}

// throughStack says why the packets of a pod have to pass the kernel stack; empty if they do not.
func (a *Agent) throughStack(req agentapi.AddRequest) string {
	if len(req.PortMappings) == 0 || req.Direct || a.paths.services == lb.ModeEBPF {
		return req.ThroughStack
	}
	if req.ThroughStack == "" {
		return "port mapping"
	}
	return "port mapping, " + req.ThroughStack
}

// connect makes an endpoint reachable: programs and policies first, so that no packet passes unchecked.
func (a *Agent) connect(e agentapi.Endpoint) (closed uint64, err error) {
	if err := netdev.SetMTU(e.HostIfIndex, e.MTU); err != nil {
		return 0, err
	}
	if err := a.failClosed.Add(failClosedPod(e)); err != nil {
		return 0, err
	}
	a.attached[e.HostDevice] = e.HostIfIndex
	if closed, err = a.closeUntilKnown(e); err != nil {
		return 0, err
	}
	if e.ThroughStack != "" {
		if err := a.attachForStack(); err != nil {
			return 0, err
		}
	}
	mac, err := net.ParseMAC(e.PodMAC)
	if err != nil {
		return 0, err
	}
	for _, addr := range e.Addresses {
		if err := a.datapath.Conntrack.Forget(addr); err != nil { // entries of an earlier pod; a killed agent may have left them
			return 0, err
		}
		if err := a.datapath.Endpoints.Set(addr, node.EndpointEntry(e)); err != nil {
			return 0, err
		}
		if err := neigh.SetPermanent(e.HostIfIndex, addr, mac); err != nil {
			return 0, err
		}
		if err := route.Add(node.EndpointRoute(e, addr, a.own, a.uplink)); err != nil {
			return 0, err
		}
	}
	return closed, nil
}

// Delete removes an endpoint and its device. A plugin that times out removes the device itself, and the container may
// have a new device when its request is handled: that one stays.
func (a *Agent) Delete(ctx context.Context, req agentapi.DeleteRequest) (err error) {
	begin := time.Now()
	defer func() { a.metrics.requested("delete", time.Since(begin), err) }()
	if err := validateAttachment(req.Attachment); err != nil {
		return err
	}
	name := device.HostName(req.ContainerID, req.IfName)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if req.HostIfIndex != 0 {
		host, ok, err := device.Pods.HostEnd(name)
		if err != nil {
			return err
		}
		if ok && host.Index != req.HostIfIndex {
			a.log.Info("late request to delete a device that is gone; the device with the same name stays", "device", name, "index", host.Index, "deleted", req.HostIfIndex)
			return nil
		}
	}
	return a.remove(name)
}

// GC removes the endpoints of one network that the runtime does not list. An endpoint whose file was lost has no
// network: it stays until its DEL. A list of a client that has given up is ignored: it may lack newer endpoints.
func (a *Agent) GC(ctx context.Context, req agentapi.GCRequest) (err error) {
	begin := time.Now()
	defer func() { a.metrics.requested("gc", time.Since(begin), err) }()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	valid := map[string]bool{}
	for _, att := range req.Valid {
		valid[device.HostName(att.ContainerID, att.IfName)] = true
	}
	var errs []error
	for name, e := range a.endpoints {
		if e.Network == req.Network && !valid[name] {
			a.log.Info("endpoint not listed by the runtime", "pod", e.PodName(), "addresses", e.Addresses)
			errs = append(errs, a.remove(name))
		}
	}
	return errors.Join(errs...)
}

// remove deletes the device of an endpoint and the endpoint; both may be gone already.
func (a *Agent) remove(hostDevice string) error {
	e, known := a.endpoints[hostDevice]
	if known {
		// Before the device, so that nothing is sent to an index that another device may get.
		for _, addr := range e.Addresses {
			if err := a.datapath.Endpoints.Delete(addr); err != nil {
				return err
			}
		}
	}
	if err := device.Pods.Delete(hostDevice); err != nil {
		return err
	}
	if !known {
		return nil
	}
	if err := a.forget(e); err != nil {
		return err
	}
	a.log.Info("endpoint removed", "pod", e.PodName(), "addresses", e.Addresses, "device", e.HostDevice)
	return nil
}

// forget undoes Add, except for the device, which is the plugin's. It releases the addresses last, when nothing
// refers to them.
func (a *Agent) forget(e agentapi.Endpoint) error {
	a.failClosed.Remove(e.HostDevice)
	var errs []error
	for _, addr := range e.Addresses {
		errs = append(errs, a.datapath.Endpoints.Delete(addr), route.Delete(route.Route{Prefix: node.HostPrefix(addr), Device: e.HostIfIndex}))
	}
	for _, addr := range e.Addresses { // afterwards no packet is checked by its policies
		errs = append(errs, a.datapath.Conntrack.Forget(addr))
	}
	errs = append(errs, a.datapath.Detach(e.HostDevice), a.store.remove(e.HostDevice))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove endpoint of %s: %w", e.PodName(), err)
	}
	delete(a.attached, e.HostDevice)
	delete(a.endpoints, e.HostDevice)
	a.expiry.PodGone(e.Addresses)
	a.pool.Release(e.HostDevice)
	if len(e.PortMappings) > 0 && a.services != nil {
		a.services.UpdateHostPorts(a.hostPorts())
	}
	if a.policies != nil {
		a.policies.UpdatePods(a.policyPods())
	}
	return nil
}

// Endpoints lists the endpoints, sorted by pod name.
func (a *Agent) Endpoints(context.Context) ([]agentapi.Endpoint, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	table, err := a.datapath.Endpoints.All()
	if err != nil {
		return nil, err
	}
	all := make([]agentapi.Endpoint, 0, len(a.endpoints))
	for _, e := range a.endpoints {
		all = append(all, a.describe(e, table))
	}
	slices.SortFunc(all, func(x, y agentapi.Endpoint) int {
		if c := strings.Compare(x.PodName(), y.PodName()); c != 0 {
			return c
		}
		return strings.Compare(x.HostDevice, y.HostDevice)
	})
	return all, nil
}

// Check compares one endpoint with the kernel.
func (a *Agent) Check(_ context.Context, att agentapi.Attachment) (_ *agentapi.Endpoint, err error) {
	begin := time.Now()
	defer func() { a.metrics.requested("check", time.Since(begin), err) }()
	if err := validateAttachment(att); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.endpoints[device.HostName(att.ContainerID, att.IfName)]
	if !ok {
		return nil, agentapi.Errorf(agentapi.CodeNotFound, "container %s has no endpoint for %s", att.ContainerID, att.IfName)
	}
	table, err := a.datapath.Endpoints.All()
	if err != nil {
		return nil, err
	}
	e = a.describe(e, table)
	if e.State == agentapi.StateReady {
		if err := a.datapath.CheckPod(e.HostDevice, e.HostIfIndex); err != nil {
			e.State = err.Error()
		}
	}
	return &e, nil
}

// describe gives an endpoint in the form of the API: with its state and its path, which the routing of the node may
// decide.
func (a *Agent) describe(e agentapi.Endpoint, table map[netip.Addr]fwd.Endpoint) agentapi.Endpoint {
	e.State = endpointState(e, table)
	if a.paths.routing == node.RoutingKernel {
		e.ThroughStack = "--routing=kernel"
	}
	return e
}

// endpointState compares an endpoint with the datapath's table.
func endpointState(e agentapi.Endpoint, table map[netip.Addr]fwd.Endpoint) string {
	for _, addr := range e.Addresses {
		if got, ok := table[addr]; !ok {
			return fmt.Sprintf("the datapath does not have address %s", addr)
		} else if want := node.EndpointEntry(e); got.ThroughStack != want.ThroughStack {
			return fmt.Sprintf("the datapath has another path for address %s: through the kernel stack %t, want %t", addr, got.ThroughStack, want.ThroughStack)
		} else if got != want {
			return fmt.Sprintf("the datapath has another device for address %s", addr)
		}
	}
	return agentapi.StateReady
}

func ownerOf(e agentapi.Endpoint) ipam.Owner {
	return ipam.Owner{ID: e.HostDevice, Namespace: e.Pod.Namespace, Name: e.Pod.Name}
}

// nextAdded gives the time of a new endpoint: now, and in any case after all existing ones, whose times may be from a
// clock that was set back since. Of pods with the same host port the newest has it. The lock is held.
func (a *Agent) nextAdded(now time.Time) time.Time {
	now = now.Round(0) // without the monotonic clock, which files do not have
	for _, e := range a.endpoints {
		if !e.Added.Before(now) {
			now = e.Added.Add(1).Round(0)
		}
	}
	return now
}
