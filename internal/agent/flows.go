package agent

import (
	"context"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/flow"
)

// flowLocals gives the pods and addresses of this node for the names in flows. It does not wait for the agent's lock.
func (a *Agent) flowLocals() (pods []flow.Local, addresses []netip.Addr, ok bool) {
	if !a.mu.TryLock() {
		return nil, nil, false
	}
	defer a.mu.Unlock()
	return a.endpoints.FlowLocals(), a.reconciler.Status().Desired.Services.HostPortAddresses, true
}

// Flows implements agentapi.Service.
func (a *Agent) Flows(ctx context.Context, which agentapi.FlowFilter) (*agentapi.FlowList, error) {
	return a.flows.Flows(ctx, which)
}

// FollowFlows implements agentapi.Service.
func (a *Agent) FollowFlows(ctx context.Context, which agentapi.FlowFilter, each func(agentapi.FlowLine) error) error {
	return a.flows.FollowFlows(ctx, which, each)
}
