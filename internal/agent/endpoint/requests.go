package endpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Add makes an endpoint of a pod device that the plugin has created.
func (e *Endpoints) Add(ctx context.Context, req agentapi.AddRequest) (*agentapi.Endpoint, error) {
	begin := time.Now()
	if err := validate(req); err != nil {
		return nil, err
	}
	if err := e.claim(ctx, &req); err != nil {
		return nil, err
	}
	p, closed, err := e.add(ctx, req)
	if err != nil {
		if req.Pool != "" {
			e.IPPools.Abandon(req.Attachment)
		}
		return nil, err
	}
	if closed != 0 {
		if err := e.Policies.PassAt(closed); err != nil {
			e.Log.Error("pod stays isolated until NetworkPolicies can be written", "pod", p.PodName(), "error", err)
		}
	}
	if len(p.PortMappings) > 0 {
		if err := e.openPorts(p); err != nil {
			return nil, errors.Join(err, e.undo(p))
		}
	}
	e.Log.Info("endpoint added", "pod", p.PodName(), "addresses", p.Addresses, "device", p.HostDevice, "took", time.Since(begin))
	return &p, nil
}

// undo forgets an endpoint, unless a DEL has done so since. Another ADD of the container may have followed the DEL: its
// endpoint has the same host device with another index, and stays.
func (e *Endpoints) undo(p agentapi.Endpoint) error {
	e.Lock.Lock()
	defer e.Lock.Unlock()
	if e.all[p.HostDevice].HostIfIndex != p.HostIfIndex {
		return nil
	}
	return e.forget(p)
}

// add makes an endpoint, except for its host ports and its policies, which do not need the lock; closed is as
// in closeUntilKnown.
func (e *Endpoints) add(ctx context.Context, req agentapi.AddRequest) (p agentapi.Endpoint, closed uint64, err error) {
	e.Lock.Lock()
	defer e.Lock.Unlock()
	if err := e.ready(); err != nil {
		return p, 0, err
	}
	if err := ctx.Err(); err != nil {
		return p, 0, err
	}
	// First of all: after the client of a request has given up, its device may be gone and the name reused.
	host, ok, err := device.Pods.HostEnd(req.HostDevice)
	if err != nil {
		return p, 0, err
	}
	if !ok || host.Index != req.HostIfIndex {
		return p, 0, agentapi.Errorf(agentapi.CodeInvalid, "hostDevice: there is no device %s with index %d on this node", req.HostDevice, req.HostIfIndex)
	}
	if old, ok := e.all[req.HostDevice]; ok && old.HostIfIndex != req.HostIfIndex {
		// The device was deleted and made anew before the agent noticed.
		if err := e.forget(old); err != nil {
			return p, 0, err
		}
	} else if ok {
		return p, 0, agentapi.Errorf(agentapi.CodeConflict, "container %s has an endpoint for %s already: %v", req.ContainerID, req.IfName, old.Addresses)
	}
	if err := e.checkPorts(req.Endpoint); err != nil {
		return p, 0, err
	}
	p = req.Endpoint
	p.MTU, p.Namespace, p.ThroughStack, p.Added = e.node.MTU, host.NetnsID+1, e.throughStack(req), e.nextAdded(time.Now())
	p.State, p.Device = agentapi.StateReady, string(host.Kind)
	if p.Macvlan != nil {
		if err := e.completeMacvlan(&p); err != nil {
			return p, 0, err
		}
	}
	if e.Services == nil {
		p.PortMappings = nil
	}
	if err := e.allocate(&p); err != nil {
		return p, 0, allocationError(err)
	}
	// Registered from here on: what forget cannot undo now is retried after the plugin has deleted the device.
	e.all[p.HostDevice] = p
	defer func() {
		if err != nil {
			err = errors.Join(err, e.forget(p))
		}
	}()
	if err := e.Expiry.Clear(p.Addresses); err != nil {
		return p, 0, err
	}
	if err := e.store.save(p); err != nil {
		return p, 0, err
	}
	if closed, err = e.connect(p); err != nil {
		return p, 0, fmt.Errorf("connect pod %s: %w", p.PodName(), err)
	}
	if p.Pool != "" {
		err = e.IPPools.Commit(p.Attachment)
	}
	return p, closed, err
}

// ready is nil if the node can have new endpoints. The lock is held.
func (e *Endpoints) ready() error {
	if e.node.NotReady == nil {
		return nil
	}
	return agentapi.Errorf(agentapi.CodeNotReady, "node %s is not ready: %v", e.Config.NodeName, e.node.NotReady)
}

// throughStack says why the packets of a pod have to pass the kernel stack; empty if they do not.
func (e *Endpoints) throughStack(req agentapi.AddRequest) string {
	if len(req.PortMappings) == 0 || req.Direct || e.Services != nil {
		return req.ThroughStack
	}
	if req.ThroughStack == "" {
		return "port mapping"
	}
	return "port mapping, " + req.ThroughStack
}

// Delete removes an endpoint and its device. A plugin that times out removes the device itself, and the container may
// have a new device when its request is handled: that one stays.
func (e *Endpoints) Delete(ctx context.Context, req agentapi.DeleteRequest) error {
	if err := validateAttachment(req.Attachment); err != nil {
		return err
	}
	name := device.HostName(req.ContainerID, req.IfName)
	e.Lock.Lock()
	defer e.Lock.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if req.HostIfIndex != 0 {
		host, ok, err := device.Pods.HostEnd(name)
		if err != nil {
			return err
		}
		if ok && host.Index != req.HostIfIndex {
			e.Log.Info("late request to delete a device that is gone; the device with the same name stays", "device", name, "index", host.Index, "deleted", req.HostIfIndex)
			return nil
		}
	}
	if _, known := e.all[name]; !known {
		e.IPPools.Release(req.Attachment) // claimed by an agent that died in ADD, or by an ADD whose client has given up
	}
	return e.remove(name)
}

// GC removes the endpoints of one network that the runtime does not list. An endpoint whose file was lost has no
// network: it stays until its DEL. A list of a client that has given up is ignored: it may lack newer endpoints.
func (e *Endpoints) GC(ctx context.Context, req agentapi.GCRequest) error {
	e.Lock.Lock()
	defer e.Lock.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	valid := map[string]bool{}
	for _, att := range req.Valid {
		valid[device.HostName(att.ContainerID, att.IfName)] = true
	}
	var errs []error
	for name, p := range e.all {
		if p.Network == req.Network && !valid[name] {
			e.Log.Info("endpoint not listed by the runtime", "pod", p.PodName(), "addresses", p.Addresses)
			errs = append(errs, e.remove(name))
		}
	}
	return errors.Join(errs...)
}

// List gives the endpoints, sorted by pod name.
func (e *Endpoints) List() ([]agentapi.Endpoint, error) {
	e.Lock.Lock()
	defer e.Lock.Unlock()
	table, err := e.Datapath.Endpoints.All()
	if err != nil {
		return nil, err
	}
	all := make([]agentapi.Endpoint, 0, len(e.all))
	for _, p := range e.all {
		all = append(all, e.describe(p, table))
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
func (e *Endpoints) Check(att agentapi.Attachment) (*agentapi.Endpoint, error) {
	if err := validateAttachment(att); err != nil {
		return nil, err
	}
	e.Lock.Lock()
	defer e.Lock.Unlock()
	p, ok := e.all[device.HostName(att.ContainerID, att.IfName)]
	if !ok {
		return nil, agentapi.Errorf(agentapi.CodeNotFound, "container %s has no endpoint for %s", att.ContainerID, att.IfName)
	}
	table, err := e.Datapath.Endpoints.All()
	if err != nil {
		return nil, err
	}
	p = e.describe(p, table)
	if p.State == agentapi.StateReady {
		if err := e.Datapath.CheckPod(p.HostDevice, p.HostIfIndex); err != nil {
			p.State = err.Error()
		}
	}
	return &p, nil
}
