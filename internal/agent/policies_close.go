package agent

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// isolates tells whether policies may select a pod in a direction, as far as is known now.
func (p *policies) isolates(namespace string) (ingress, egress bool) {
	p.inputs.mu.Lock()
	snapshot := p.inputs.snapshot
	p.inputs.mu.Unlock()
	if snapshot == nil || !knownPolicies(snapshot) {
		return true, true
	}
	begin, _ := slices.BinarySearchFunc(snapshot.NetworkPolicies, namespace, func(n *cluster.NetworkPolicy, namespace string) int {
		return strings.Compare(n.Namespace, namespace)
	})
	for _, n := range snapshot.NetworkPolicies[begin:] {
		if n.Namespace != namespace {
			break
		}
		ingress, egress = ingress || n.IsolatesIngress, egress || n.IsolatesEgress
	}
	return ingress, egress
}

// close closes a pod that is being added until a pass that knows of it, and gives the number of that: see passAt.
func (p *policies) close(pods []policy.LocalPod, addresses []netip.Addr) (number uint64, err error) {
	p.holding.Lock()
	defer p.holding.Unlock()
	number = p.take(func(in *policyInputs) bool {
		in.local.Pods = pods
		for _, a := range addresses {
			in.held[a] = in.number + 1
		}
		return true
	})
	return number, p.table.Close(addresses)
}

// mayKnow tells whether tables may say something of addresses that pods have got whose addition was told of by setPods: of who had them
// before, and under whose identity nobody is to be reached now.
func (p *policies) mayKnow(addresses []netip.Addr) bool {
	p.inputs.mu.Lock()
	snapshot, pods := p.inputs.passing, p.inputs.passingPods
	p.inputs.mu.Unlock()
	isOne := func(a netip.Addr) bool { return slices.Contains(addresses, a) }
	if slices.ContainsFunc(pods, func(pod policy.LocalPod) bool { return slices.ContainsFunc(pod.Addresses, isOne) }) {
		return true
	}
	if snapshot != nil {
		for pod := range snapshot.Pods.All() {
			if slices.ContainsFunc(pod.Addresses, isOne) {
				return true
			}
		}
	}
	o := p.current()
	if o.tables == nil || o.failure != nil && !ofSets(o.failure) {
		return p.table.Knows(addresses)
	}
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		_, governed := o.tables.Pods[a]
		_, own := o.tables.Identities[a]
		_, known := o.tables.Peers.Get(a)
		return governed || own || known
	})
}

// releaseHeld opens what was closed for pods that were added: the tables in force know them. An address that has been
// closed again since is another pod's.
func (p *policies) releaseHeld(held map[netip.Addr]uint64) error {
	p.holding.Lock()
	defer p.holding.Unlock()
	p.inputs.mu.Lock()
	maps.DeleteFunc(held, func(a netip.Addr, number uint64) bool { return p.inputs.held[a] != number })
	p.inputs.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	if err := p.table.Release(slices.Collect(maps.Keys(held))); err != nil {
		return err
	}
	p.inputs.mu.Lock()
	defer p.inputs.mu.Unlock()
	for a := range held {
		delete(p.inputs.held, a)
	}
	return nil
}
