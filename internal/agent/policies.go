package agent

import (
	"context"
	"errors"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// errPoliciesMissing keeps the programs of an earlier agent attached.
var errPoliciesMissing = errors.New("programs that enforce NetworkPolicies wait for the cluster's policies, without which pods would be open")

// newPolicies makes the Policies, where the datapath enforces them.
func (a *Agent) newPolicies() (err error) {
	if a.modes.Policy != agentpolicy.ModeEBPF {
		return nil
	}
	c := a.config
	a.policies = agentpolicy.New(agentpolicy.Options{
		Config: c.PolicyConfig, Node: c.NodeName, Manifests: c.Manifests != "",
		Services: a.modes.Services, NodePorts: c.NodePortAddresses, ExternalIPs: c.ExternalIPs,
		DSR:   c.NodePortMode == lb.NodePortDSR && a.modes.Routing == node.RoutingEBPF && c.Tunnel != node.TunnelVXLAN,
		Fresh: a.datapath.PoliciesFresh(), FailClosed: a.failClosed.Update, Changed: a.policiesChanged, Reconcile: a.reconcileSoon,
		Beat: a.beats.Add("the loop of policies"),
	}, a.datapath.Policies, a.log)
	a.policiesLost, err = a.datapath.PoliciesLost()
	return err
}

// policiesChanged updates what depends on the result of a pass. It does not block.
func (a *Agent) policiesChanged() {
	if names := a.policies.Names(); names != nil {
		a.flows.UpdatePolicies(names)
	}
	a.reports.Update()
}

// applyPolicies hands over the state of the node. When the agent starts, it waits for policies that are synced
// already.
func (a *Agent) applyPolicies(want node.Desired) {
	if a.policies == nil {
		return
	}
	a.policies.UpdatePods(a.endpoints.PolicyPods())
	a.policies.UpdateNode(want.Services.HostPortAddresses)
	if !a.policies.Filled() {
		_ = a.policies.Pass() // Problems has the failure
	}
}

// policyStatus needs the agent's lock.
func (a *Agent) policyStatus() (s agentapi.PolicyStatus) {
	switch {
	case a.policies != nil:
		s = a.policies.Status()
	case a.snapshot != nil:
		s.Policies = len(a.snapshot.NetworkPolicies)
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
