package cni_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/ipam"
)

// agent behaves as the real one does towards the plugin: it allocates addresses, knows endpoints as long
// as their host device exists, and deletes the device with the endpoint. It has no datapath.
type agent struct {
	node ns.NetNS
	pool *ipam.Pool

	mu        sync.Mutex
	endpoints map[agentapi.Attachment]agentapi.Endpoint
	// sick is what Ready and Add answer, if set.
	sick error
	// mtu is what pods get, adds counts the calls; during, if set, runs in the middle of Add.
	mtu    int
	adds   int
	during func()
}

func owner(a agentapi.Attachment) string { return a.ContainerID + "/" + a.IfName }

func (a *agent) Prepare(_ context.Context, req agentapi.PrepareRequest) (*agentapi.Preparation, error) {
	return &agentapi.Preparation{Device: cmp.Or(req.Device, string(device.Veth))}, nil
}

func (a *agent) Add(_ context.Context, req agentapi.AddRequest) (*agentapi.Endpoint, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adds++
	if a.sick != nil {
		return nil, a.sick
	}
	addrs, err := a.pool.Allocate(ipam.Owner{ID: owner(req.Attachment), Namespace: req.Pod.Namespace})
	var exhausted *ipam.ExhaustedError
	switch {
	case errors.As(err, &exhausted):
		return nil, agentapi.Errorf(agentapi.CodeExhausted, "%v", err)
	case errors.Is(err, ipam.ErrHeld):
		return nil, agentapi.Errorf(agentapi.CodeConflict, "%v", err)
	case err != nil:
		return nil, err
	}
	e := req.Endpoint
	e.Addresses, e.MTU, e.State = addrs, a.mtu, agentapi.StateReady
	a.endpoints[req.Attachment] = e
	if a.during != nil {
		a.during()
	}
	return &e, nil
}

func (a *agent) Delete(_ context.Context, req agentapi.DeleteRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.remove(req.Attachment)
}

func (a *agent) remove(at agentapi.Attachment) error {
	err := a.node.Do(func(ns.NetNS) error { return device.Pods.Delete(device.HostName(at.ContainerID, at.IfName)) })
	if err == nil {
		a.pool.Release(owner(at))
		delete(a.endpoints, at)
	}
	return err
}

func (a *agent) Check(_ context.Context, at agentapi.Attachment) (*agentapi.Endpoint, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.endpoints[at]
	if !ok {
		return nil, agentapi.Errorf(agentapi.CodeNotFound, "no endpoint")
	}
	return &e, nil
}

func (a *agent) GC(_ context.Context, req agentapi.GCRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for at, e := range a.endpoints {
		if e.Network == req.Network && !slices.Contains(req.Valid, at) {
			errs = append(errs, a.remove(at))
		}
	}
	return errors.Join(errs...)
}

func (a *agent) Ready(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sick
}

func (a *agent) Status(context.Context) (*agentapi.Status, error) { return &agentapi.Status{}, nil }

func (a *agent) Endpoints(context.Context) ([]agentapi.Endpoint, error) { return nil, nil }

func (a *agent) IPPools(context.Context) ([]agentapi.IPPool, error) { return nil, nil }

func (a *agent) Services(context.Context, agentapi.ServiceFilter) ([]agentapi.ServicePort, error) {
	return nil, nil
}

func (a *agent) Policies(context.Context, agentapi.PolicyFilter) ([]agentapi.NetworkPolicy, error) {
	return nil, nil
}

func (a *agent) ExplainPolicy(context.Context, agentapi.PolicyQuestion) (*agentapi.PolicyAnswer, error) {
	return &agentapi.PolicyAnswer{}, nil
}

func (a *agent) Drops(context.Context) ([]agentapi.Drop, error) { return nil, nil }

func (a *agent) Flows(context.Context, agentapi.FlowFilter) (*agentapi.FlowList, error) {
	return &agentapi.FlowList{}, nil
}

func (a *agent) FollowFlows(context.Context, agentapi.FlowFilter, func(agentapi.FlowLine) error) error {
	return nil
}

// known gives a copy of the endpoints.
func (a *agent) known() map[agentapi.Attachment]agentapi.Endpoint {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.endpoints)
}

// asked gives how often Add was called.
func (a *agent) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.adds
}

func (a *agent) fallSick(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sick = err
}
