package oracle

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Change returns a successor of the Cluster; unchanged objects are the same, as in consecutive snapshots.
func (w Cluster) Change(r *rand.Rand) Cluster {
	next := *w.Snapshot
	w = Cluster{&next}
	switch r.IntN(6) {
	case 0:
		w.Namespaces = slices.Clone(w.Namespaces)
		for i, n := range w.Namespaces {
			if chance(r, 50) {
				w.Namespaces[i] = randomNamespace(r, n.Name)
			}
		}
	case 1:
		w.NetworkPolicies = append(slices.Clone(w.NetworkPolicies), randomPolicy(r, 100+r.IntN(1000)))
	case 2:
		if n := len(w.NetworkPolicies); n > 0 {
			i := r.IntN(n)
			w.NetworkPolicies = slices.Delete(slices.Clone(w.NetworkPolicies), i, i+1)
		}
	case 3:
		if n := len(w.NetworkPolicies); n > 0 {
			i := r.IntN(n)
			changed := randomPolicy(r, 0)
			changed.Namespace, changed.Name = w.NetworkPolicies[i].Namespace, w.NetworkPolicies[i].Name
			w.NetworkPolicies = slices.Clone(w.NetworkPolicies)
			w.NetworkPolicies[i] = changed
		}
	case 4:
		w.changePod(r, func(p *cluster.Pod) { p.Labels = cluster.NewLabels(randomLabels(r)) })
	case 5:
		w.changePod(r, func(p *cluster.Pod) {
			if p.Node == There {
				p.Ended = !p.Ended
			} else {
				p.Ports = randomPod(r, slots[0]).Ports
			}
		})
	}
	slices.SortFunc(w.NetworkPolicies, func(a, b *cluster.NetworkPolicy) int { return a.Key().Compare(b.Key()) })
	return w.withoutTwins()
}

func (w Cluster) changePod(r *rand.Rand, change func(*cluster.Pod)) {
	pods := w.Pods.Slice()
	i := r.IntN(len(pods))
	changed := *pods[i]
	change(&changed)
	pods[i] = &changed
	w.Pods = podList(pods)
}

// withoutTwins ends pods that share addresses, and drops policies that share a name.
func (w Cluster) withoutTwins() Cluster {
	taken := map[netip.Addr]bool{}
	pods := w.Pods.Slice()
	for i, p := range pods {
		switch {
		case p.Ended || p.HostNetwork:
		case slices.ContainsFunc(p.Addresses, func(a netip.Addr) bool { return taken[a] }):
			ended := *p
			ended.Ended = true
			pods[i] = &ended
		default:
			for _, a := range p.Addresses {
				taken[a] = true
			}
		}
	}
	w.Pods = cluster.ListOf(pods...)
	sameName := func(a, b *cluster.NetworkPolicy) bool { return a.Key() == b.Key() }
	if distinct := slices.CompactFunc(slices.Clone(w.NetworkPolicies), sameName); len(distinct) < len(w.NetworkPolicies) {
		w.NetworkPolicies = distinct
	}
	return w
}
