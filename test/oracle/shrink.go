package oracle

import (
	"iter"
	"maps"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Shrink removes parts of a Cluster, one at a time, while `fails` still returns true, and returns the rest.
func (w Cluster) Shrink(fails func(Cluster) bool) Cluster {
	for {
		smaller, found := w, false
		for candidate := range w.smaller() {
			if fails(candidate) {
				smaller, found = candidate, true
				break
			}
		}
		if !found {
			return w
		}
		w = smaller
	}
}

// smaller returns the Clusters that lack one thing, the largest things first.
func (w Cluster) smaller() iter.Seq[Cluster] {
	return func(yield func(Cluster) bool) {
		with := func(change func(*cluster.Snapshot)) bool {
			s := *w.Snapshot
			change(&s)
			return yield(Cluster{&s})
		}
		for policies := range without(w.NetworkPolicies) {
			if !with(func(s *cluster.Snapshot) { s.NetworkPolicies = policies }) {
				return
			}
		}
		for i, p := range w.Pods.Slice() {
			if p.Node == Here && !p.HostNetwork {
				continue // needed by every evaluator
			}
			if !with(func(s *cluster.Snapshot) { s.Pods = cluster.ListOf(slices.Delete(w.Pods.Slice(), i, i+1)...) }) {
				return
			}
		}
		for namespaces := range without(w.Namespaces) {
			if !with(func(s *cluster.Snapshot) { s.Namespaces = namespaces }) {
				return
			}
		}
		for i, p := range w.NetworkPolicies {
			for policy := range smallerPolicies(*p) {
				if !with(func(s *cluster.Snapshot) { s.NetworkPolicies = replaced(w.NetworkPolicies, i, &policy) }) {
					return
				}
			}
		}
		for i, p := range w.Pods.Slice() {
			for pod := range smallerPods(*p) {
				if !with(func(s *cluster.Snapshot) { s.Pods = cluster.ListOf(replaced(w.Pods.Slice(), i, &pod)...) }) {
					return
				}
			}
		}
		for i, n := range w.Namespaces {
			for labels := range smallerLabels(n.Labels) {
				smaller := &cluster.Namespace{Name: n.Name, Labels: labels}
				if !with(func(s *cluster.Snapshot) { s.Namespaces = replaced(w.Namespaces, i, smaller) }) {
					return
				}
			}
		}
	}
}

// without returns the list without each of its items.
func without[T any](list []T) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for i := range list {
			if !yield(slices.Delete(slices.Clone(list), i, i+1)) {
				return
			}
		}
	}
}

// replaced returns the list with another item.
func replaced[T any](list []T, i int, item T) []T {
	list = slices.Clone(list)
	list[i] = item
	return list
}

func smallerPolicies(p cluster.NetworkPolicy) iter.Seq[cluster.NetworkPolicy] {
	return func(yield func(cluster.NetworkPolicy) bool) {
		if p.IsolatesIngress && p.IsolatesEgress {
			one, other := p, p
			one.IsolatesIngress, one.Ingress = false, nil
			other.IsolatesEgress, other.Egress = false, nil
			if !yield(one) || !yield(other) {
				return
			}
		}
		for rules := range smallerRules(p.Ingress) {
			smaller := p
			if smaller.Ingress = rules; !yield(smaller) {
				return
			}
		}
		for rules := range smallerRules(p.Egress) {
			smaller := p
			if smaller.Egress = rules; !yield(smaller) {
				return
			}
		}
		for requirements := range without(p.Pods.Requirements) {
			smaller := p
			if smaller.Pods.Requirements = requirements; !yield(smaller) {
				return
			}
		}
	}
}

func smallerRules(rules []cluster.PolicyRule) iter.Seq[[]cluster.PolicyRule] {
	return func(yield func([]cluster.PolicyRule) bool) {
		for fewer := range without(rules) {
			if !yield(fewer) {
				return
			}
		}
		for i, rule := range rules {
			for peers := range without(rule.Peers) {
				if !yield(replaced(rules, i, cluster.PolicyRule{Peers: peers, Ports: rule.Ports})) {
					return
				}
			}
			for ports := range without(rule.Ports) {
				if !yield(replaced(rules, i, cluster.PolicyRule{Peers: rule.Peers, Ports: ports})) {
					return
				}
			}
			for j, peer := range rule.Peers {
				for smaller := range smallerPeers(peer) {
					if !yield(replaced(rules, i, cluster.PolicyRule{Peers: replaced(rule.Peers, j, smaller), Ports: rule.Ports})) {
						return
					}
				}
			}
		}
	}
}

func smallerPeers(peer cluster.PolicyPeer) iter.Seq[cluster.PolicyPeer] {
	return func(yield func(cluster.PolicyPeer) bool) {
		for except := range without(peer.Except) {
			if !yield(cluster.PolicyPeer{Block: peer.Block, Except: except}) {
				return
			}
		}
		if peer.Namespaces != nil && peer.Pods != nil && (!yield(cluster.PolicyPeer{Pods: peer.Pods}) || !yield(cluster.PolicyPeer{Namespaces: peer.Namespaces})) {
			return
		}
		if peer.Namespaces != nil {
			for requirements := range without(peer.Namespaces.Requirements) {
				if !yield(cluster.PolicyPeer{Namespaces: &cluster.Selector{Requirements: requirements}, Pods: peer.Pods}) {
					return
				}
			}
		}
		if peer.Pods != nil {
			for requirements := range without(peer.Pods.Requirements) {
				if !yield(cluster.PolicyPeer{Namespaces: peer.Namespaces, Pods: &cluster.Selector{Requirements: requirements}}) {
					return
				}
			}
		}
	}
}

func smallerPods(p cluster.Pod) iter.Seq[cluster.Pod] {
	return func(yield func(cluster.Pod) bool) {
		for labels := range smallerLabels(p.Labels) {
			smaller := p
			if smaller.Labels = labels; !yield(smaller) {
				return
			}
		}
		for ports := range without(p.Ports) {
			smaller := p
			if smaller.Ports = ports; !yield(smaller) {
				return
			}
		}
	}
}

func smallerLabels(labels cluster.Labels) iter.Seq[cluster.Labels] {
	return func(yield func(cluster.Labels) bool) {
		all := maps.Collect(labels.All())
		for key := range labels.All() {
			fewer := maps.Clone(all)
			delete(fewer, key)
			if !yield(cluster.NewLabels(fewer)) {
				return
			}
		}
	}
}
