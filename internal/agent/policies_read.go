package agent

import (
	"context"
	"slices"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Policies lists the NetworkPolicies of the cluster as this node has them.
func (a *Agent) Policies(_ context.Context, which agentapi.PolicyFilter) ([]agentapi.NetworkPolicy, error) {
	if a.policies == nil {
		return nil, a.errNoPolicies()
	}
	snapshot, local := a.policies.newest()
	if snapshot == nil {
		return []agentapi.NetworkPolicy{}, nil
	}
	states := a.policies.current().states
	selected := map[cluster.Key][]string{}
	view := local.View(snapshot, "")
	for _, pod := range local.Pods {
		ingress, egress := selecting(view, pod.Pod)
		keys := append(ingress, egress...)
		slices.SortFunc(keys, cluster.Key.Compare)
		for _, key := range slices.Compact(keys) {
			if name := pod.Pod.String(); !slices.Contains(selected[key], name) {
				selected[key] = append(selected[key], name)
			}
		}
	}
	all := []agentapi.NetworkPolicy{}
	for _, p := range snapshot.NetworkPolicies {
		if which.Namespace != "" && which.Namespace != p.Namespace || which.Name != "" && which.Name != p.Name {
			continue
		}
		out := agentapi.NetworkPolicy{
			Namespace: p.Namespace, Name: p.Name, Pods: append([]string{}, selected[p.Key()]...), Directions: directions(p),
			IngressRules: len(p.Ingress), EgressRules: len(p.Egress), State: agentapi.PolicyPending, Reason: "it has just come",
		}
		if !knownPolicies(snapshot) {
			out.Reason = unknownPolicies(snapshot)
		}
		if s, ok := states[p.Key()]; ok && s.of == p {
			out.State, out.Reason, out.Since = s.state, s.reason, s.since
		}
		all = append(all, out)
	}
	return all, nil
}

func (a *Agent) errNoPolicies() error {
	return agentapi.Errorf(agentapi.CodeInvalid, "this agent does not put NetworkPolicies into force (--policy=%s)", a.ways.policy)
}

func directions(p *cluster.NetworkPolicy) []string {
	all := []string{}
	if p.IsolatesIngress {
		all = append(all, agentapi.DirectionIngress)
	}
	if p.IsolatesEgress {
		all = append(all, agentapi.DirectionEgress)
	}
	return all
}

// newest gives the snapshot and what is known of the node for the next pass.
func (p *policies) newest() (*cluster.Snapshot, policy.Local) {
	p.inputs.mu.Lock()
	defer p.inputs.mu.Unlock()
	if p.inputs.snapshot == nil {
		return nil, p.inputs.local
	}
	return p.inputs.snapshot, p.inputs.local.Named(p.inputs.snapshot)
}

// policyStatus tells what this node has to do with NetworkPolicies. The agent's lock is held.
func (a *Agent) policyStatus() agentapi.PolicyStatus {
	s := agentapi.PolicyStatus{Enforced: a.policies != nil, ExpiredSessions: a.connections.expiredSessions.Load()}
	if a.snapshot != nil {
		s.Policies = len(a.snapshot.NetworkPolicies)
	}
	if a.policies == nil {
		return s
	}
	o := a.policies.current()
	s.Known = o.filled
	if a.snapshot != nil {
		s.Closed, s.Pending = o.states.count(a.snapshot.NetworkPolicies)
	}
	closed := map[cluster.Key]bool{}
	for c := range o.closed {
		closed[c.pod] = true
	}
	for _, pod := range o.local.Pods {
		if (o.isIncomplete(pod, true) || o.isIncomplete(pod, false)) && len(o.open) == 0 {
			closed[pod.Pod] = true
		}
	}
	s.ClosedPods = len(closed)
	if o.tables == nil {
		return s
	}
	sets := map[policy.Set]bool{}
	for _, pod := range o.local.Pods {
		governed := false
		for _, addr := range pod.Addresses {
			of, is := o.tables.Pods[addr]
			governed = governed || is
			sets[of.Ingress], sets[of.Egress] = true, true
		}
		if governed {
			s.Pods++
		}
	}
	delete(sets, policy.NotIsolated)
	delete(sets, policy.Closed)
	s.Sets, s.Identities, s.Blocks = len(sets), len(o.tables.Identities)+o.tables.Peers.Len()+len(o.tables.Singles), len(o.tables.Blocks)
	s.Entries, s.Ports = len(o.tables.Policies), len(o.tables.Ports)
	return s
}

// policyWarnings are the problems of policies that close pods here, or leave them open, for Events on them, and the other problems.
func (p problemSources) policyWarnings() (ofPolicies []policyWarning, others []string) {
	all := p.policies()
	if p.agent.policies == nil {
		return nil, all
	}
	o := p.agent.policies.current()
	of := map[string]bool{}
	for i, problem := range o.problems {
		if problem.Policy == (cluster.Key{}) {
			continue
		}
		of[problem.Text] = true
		if len(problem.Pods) == 0 || p.isReported(problem) {
			continue
		}
		reason := reasonPolicyClosed
		if i >= len(o.problems)-len(o.open) { // they are the last ones
			reason = reasonPolicyOpen
		}
		ofPolicies = append(ofPolicies, policyWarning{problem, reason})
	}
	for _, text := range all {
		if !of[text] {
			others = append(others, text)
		}
	}
	return ofPolicies, others
}

// isReported tells whether a problem is that of a policy which no node understands: one node reports it, by what the source says.
func (p problemSources) isReported(problem policy.Problem) bool {
	_, ok := p.agent.source.(remote)
	return ok && policyOf(p.agent.policies.current().snapshot, problem.Policy).Wrong != ""
}
