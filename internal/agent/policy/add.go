package policy

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// AddPod prepares for a new pod, before anything can reach it. If policies may concern the pod, it is default-deny
// until a pass that includes it: number is the pass to wait for with PassAt, 0 if there is none. pods are those of
// the node, with the new one.
func (p *Policies) AddPod(pods []policy.LocalPod, namespace string, addresses []netip.Addr) (number uint64, err error) {
	ingress, egress := p.isolates(namespace)
	if !ingress && !egress {
		p.UpdatePods(pods)
		// A policy that arrives from here on is compiled with the pod; an earlier one may have been compiled without
		// it.
		ingress, egress = p.isolates(namespace)
		if !ingress && !egress && !p.mayKnow(addresses) {
			return 0, nil
		}
	}
	return p.close(pods, addresses)
}

// isolates reports whether policies may select a pod of a namespace in each direction.
func (p *Policies) isolates(namespace string) (ingress, egress bool) {
	p.inputs.mu.Lock()
	snapshot := p.inputs.snapshot
	p.inputs.mu.Unlock()
	if snapshot == nil || !known(snapshot) {
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

// close makes a pod default-deny until a pass that includes it, and returns the number of that pass.
func (p *Policies) close(pods []policy.LocalPod, addresses []netip.Addr) (number uint64, err error) {
	p.holding.Lock()
	defer p.holding.Unlock()
	number = p.take(func(in *inputs) bool {
		in.local.Pods = pods
		for _, a := range addresses {
			in.held[a] = in.number + 1
		}
		return true
	})
	return number, p.table.Close(addresses)
}

// mayKnow reports whether the tables may have entries of a new pod's addresses: from their former pod, whose identity
// the new one must not have.
func (p *Policies) mayKnow(addresses []netip.Addr) bool {
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
		return p.table.HasAny(addresses)
	}
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		_, governed := o.tables.Pods[a]
		_, own := o.tables.Identities[a]
		_, known := o.tables.Peers.Get(a)
		return governed || own || known
	})
}

// releaseHeld releases pods that AddPod closed and that the active tables include. An address that was closed again
// since belongs to another pod.
func (p *Policies) releaseHeld(held map[netip.Addr]uint64) error {
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
