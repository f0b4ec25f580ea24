package agent

import (
	"context"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// newPolicies makes the Policies, where the datapath enforces them.
func (a *Agent) newPolicies() {
	if a.modes.Policy != agentpolicy.ModeEBPF {
		return
	}
	c := a.config
	a.policies = agentpolicy.New(agentpolicy.Options{
		Config: c.PolicyConfig, Node: c.NodeName, Manifests: c.Manifests != "",
		Services: a.modes.Services, NodePorts: c.NodePortAddresses, ExternalIPs: c.ExternalIPs,
		DSR:   c.NodePortMode == lb.NodePortDSR && a.modes.Routing == node.RoutingEBPF && c.Tunnel != node.TunnelVXLAN,
		Fresh: a.datapath.PoliciesFresh(), FailClosed: a.failClosed.Update, Changed: a.policiesChanged, Reconcile: a.wake.Set,
		Beat: a.beats.Add("the loop of policies"),
	}, a.datapath.Policies, a.log)
}

// policiesChanged updates what depends on the result of a pass. It does not block.
func (a *Agent) policiesChanged() {
	if names := a.policies.Names(); names != nil {
		a.flows.UpdatePolicies(names)
	}
	a.reports.Update()
}

func (a *Agent) policyStatus(snapshot *cluster.Snapshot) (s agentapi.PolicyStatus) {
	switch {
	case a.policies != nil:
		s = a.policies.Status()
	case snapshot != nil:
		s.Policies = len(snapshot.NetworkPolicies)
	}
	return s
}

// Policies implements agentapi.Service.
func (a *Agent) Policies(_ context.Context, which agentapi.PolicyFilter) ([]agentapi.NetworkPolicy, error) {
	if a.policies == nil {
		return nil, a.errNoPolicies()
	}
	return a.policies.List(which), nil
}

// ExplainPolicy implements agentapi.Service.
func (a *Agent) ExplainPolicy(_ context.Context, q agentapi.PolicyQuestion) (*agentapi.PolicyAnswer, error) {
	if a.policies == nil {
		return nil, a.errNoPolicies()
	}
	return a.policies.Explain(q)
}

func (a *Agent) errNoPolicies() error {
	return agentapi.Errorf(agentapi.CodeInvalid, "this agent does not enforce NetworkPolicies (--policy=%s)", a.modes.Policy)
}
