package agent

import (
	"context"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// endpointOptions are what the endpoints depend on.
func (a *Agent) endpointOptions() endpoint.Options {
	return endpoint.Options{
		Config: a.config.NodeConfig, LB: a.config.ServiceConfig, MetricsAddress: a.config.MetricsAddress,
		Device: a.modes.Device, DeviceOfPools: a.modes.DeviceOfPools, NoNetkit: a.modes.NoNetkit, StateDir: a.config.StateDir, Routing: a.modes.Routing, Lock: &a.mu, Pool: a.pool, IPPools: a.ipPools,
		Datapath: endpoint.Datapath{
			Endpoints: a.datapath.Endpoints, Macvlans: a.datapath.Macvlans, Routes: a.datapath.Routes, ForgetConnections: a.datapath.Conntrack.Forget,
			Detach: a.datapath.Detach, CheckPod: a.datapath.CheckPod,
		},
		AttachForStack: a.programs.AttachForStack, LoadParent: a.datapath.LoadParent, AttachParent: a.programs.AttachParent, Reconcile: a.wake.Set, Limits: a.limits, FailClosed: a.failClosed, Expiry: a.expiry, Services: a.services, Policies: a.policies, Log: a.log,
	}
}

// Prepare implements agentapi.Service.
func (a *Agent) Prepare(ctx context.Context, req agentapi.PrepareRequest) (_ *agentapi.Preparation, err error) {
	defer a.metrics.request("prepare", &err)()
	return a.endpoints.Prepare(ctx, req)
}

// Add implements agentapi.Service.
func (a *Agent) Add(ctx context.Context, req agentapi.AddRequest) (_ *agentapi.Endpoint, err error) {
	defer a.metrics.request("add", &err)()
	defer a.sameNode.Wake()
	return a.endpoints.Add(ctx, req)
}

// Delete implements agentapi.Service.
func (a *Agent) Delete(ctx context.Context, req agentapi.DeleteRequest) (err error) {
	defer a.metrics.request("delete", &err)()
	defer a.sameNode.Wake()
	return a.endpoints.Delete(ctx, req)
}

// GC implements agentapi.Service.
func (a *Agent) GC(ctx context.Context, req agentapi.GCRequest) (err error) {
	defer a.metrics.request("gc", &err)()
	defer a.sameNode.Wake()
	return a.endpoints.GC(ctx, req)
}

// Check implements agentapi.Service.
func (a *Agent) Check(_ context.Context, att agentapi.Attachment) (_ *agentapi.Endpoint, err error) {
	defer a.metrics.request("check", &err)()
	return a.endpoints.Check(att)
}

// IPPools implements agentapi.Service.
func (a *Agent) IPPools(context.Context) ([]agentapi.IPPool, error) { return a.ipPools.List(), nil }

// Endpoints implements agentapi.Service.
func (a *Agent) Endpoints(context.Context) ([]agentapi.Endpoint, error) { return a.endpoints.List() }
