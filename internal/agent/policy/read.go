package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// List lists the NetworkPolicies of the cluster with their state on this node.
func (p *Policies) List(which agentapi.PolicyFilter) []agentapi.NetworkPolicy {
	snapshot, _ := p.newest()
	if snapshot == nil {
		return []agentapi.NetworkPolicy{}
	}
	o := p.current()
	selected := map[cluster.Key][]string{}
	if o.tables != nil {
		for _, pod := range slices.SortedFunc(maps.Keys(o.tables.Selected), cluster.Key.Compare) {
			for _, key := range o.tables.Selected[pod] {
				selected[key] = append(selected[key], pod.String())
			}
		}
	}
	all := []agentapi.NetworkPolicy{}
	for _, n := range snapshot.NetworkPolicies {
		if which.Namespace != "" && which.Namespace != n.Namespace || which.Name != "" && which.Name != n.Name {
			continue
		}
		out := agentapi.NetworkPolicy{
			Namespace: n.Namespace, Name: n.Name, Pods: append([]string{}, selected[n.Key()]...), Directions: directions(n),
			IngressRules: len(n.Ingress), EgressRules: len(n.Egress), State: agentapi.PolicyPending, Reason: "it is new",
		}
		if !known(snapshot) {
			out.Reason = unknownPolicies(snapshot)
		}
		if s, ok := o.states[n.Key()]; ok && s.of == n {
			out.State, out.Reason, out.Since = s.state, s.reason, s.since
		}
		all = append(all, out)
	}
	return all
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

// newest gives the snapshot and the local inputs of the next pass.
func (p *Policies) newest() (*cluster.Snapshot, policy.Local) {
	p.inputs.mu.Lock()
	defer p.inputs.mu.Unlock()
	if p.inputs.snapshot == nil {
		return nil, p.inputs.local
	}
	return p.inputs.snapshot, p.inputs.local.Named(p.inputs.snapshot)
}

// Status counts NetworkPolicies, the pods that they select, and the entries of the tables.
func (p *Policies) Status() agentapi.PolicyStatus {
	s := agentapi.PolicyStatus{Enforced: true}
	o := p.current()
	s.Synced = o.filled
	if snapshot, _ := p.newest(); snapshot != nil {
		s.Policies = len(snapshot.NetworkPolicies)
		s.Closed, s.Pending = o.states.count(snapshot.NetworkPolicies)
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
	delete(sets, policy.DenyAll)
	s.Sets, s.Identities, s.Blocks = len(sets), len(o.tables.Identities)+o.tables.Peers.Len(), len(o.tables.Blocks)
	s.Entries, s.Ports = len(o.tables.Policies), len(o.tables.Ports)
	return s
}

// Warning is a problem of a NetworkPolicy that concerns local pods. Open says that the policy is not enforced for
// them; else they are isolated.
type Warning struct {
	policy.Problem
	Open bool
}

// Warnings are the problems of policies that isolate local pods or leave them open, and the other problems. With
// reported, policies that are invalid on all nodes are reported by one node.
func (p *Policies) Warnings(reported bool) (ofPolicies []Warning, others []string) {
	o := p.current()
	of := map[string]bool{}
	for i, problem := range o.problems {
		if problem.Policy == (cluster.Key{}) {
			continue
		}
		of[problem.Text] = true
		if len(problem.Pods) == 0 || reported && policyOf(o.snapshot, problem.Policy).Invalid != "" {
			continue
		}
		ofPolicies = append(ofPolicies, Warning{problem, i >= len(o.problems)-len(o.open)}) // those are the last ones
	}
	for _, text := range p.Problems() {
		if !of[text] {
			others = append(others, text)
		}
	}
	return ofPolicies, others
}

// Problems are the problems of NetworkPolicies, one sentence each.
func (p *Policies) Problems() []string {
	o := p.current()
	all := o.all()
	if p.options.Services == lb.ModeKubeProxy {
		all = append(all, o.besideKubeProxy()...)
	}
	if snapshot, _ := p.newest(); snapshot != nil && !known(snapshot) {
		all = append(all, unknownPolicies(snapshot))
	}
	return all
}

// unknownPolicies says what policies wait for.
func unknownPolicies(s *cluster.Snapshot) string {
	var missing []string
	for _, kind := range policyKinds {
		if s.Unknown.Has(kind) {
			missing = append(missing, string(kind))
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("NetworkPolicies wait for the cluster's lists of %s: those of before stay active, and new pods are closed", strings.Join(missing, ", "))
	}
	return "NetworkPolicies in manifests that were there when the agent started are not understood: those of before stay active, and new pods are closed"
}

// NotEnforced says that this agent enforces no policies of a snapshot.
func NotEnforced(s *cluster.Snapshot) string {
	return "NetworkPolicies have no effect on this node (--policy=none): " + named(s.NetworkPolicies)
}
