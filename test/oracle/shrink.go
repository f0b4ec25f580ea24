package oracle

import (
	"maps"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Shrink removes parts of a Cluster, one at a time, while `fails` still returns true, and returns the rest.
func (w Cluster) Shrink(fails func(Cluster) bool) Cluster {
	for {
		before := w
		for n := 0; ; {
			cut := cutter{parts: n}
			smaller := cut.cluster(w)
			if !cut.done() {
				break
			}
			if fails(smaller) {
				w = smaller
			} else {
				n++
			}
		}
		if w == before {
			return w
		}
	}
}

// cutter copies a Cluster without one part. It counts down the parts before that one.
type cutter struct{ parts int }

// cut reports whether the next part is the one to leave out.
func (c *cutter) cut() bool {
	c.parts--
	return c.parts == -1
}

func (c *cutter) done() bool { return c.parts < 0 }

// cutList copies a list without the part, which is an item or inside of one.
func cutList[T any](c *cutter, list []T, inside func(T) T) (rest []T) {
	for _, item := range list {
		if !c.cut() {
			rest = append(rest, inside(item))
		}
	}
	return rest
}

func whole[T any](item T) T { return item }

func (c *cutter) cluster(w Cluster) Cluster {
	s := *w.Snapshot
	s.NetworkPolicies = cutList(c, s.NetworkPolicies, c.policy)
	var pods []*cluster.Pod
	for p := range s.Pods.All() {
		needed := p.Node == Here && !p.HostNetwork // by every evaluator
		if needed || !c.cut() {
			pods = append(pods, c.pod(p))
		}
	}
	s.Pods = cluster.ListOf(pods...)
	s.Namespaces = cutList(c, s.Namespaces, func(n *cluster.Namespace) *cluster.Namespace {
		return &cluster.Namespace{Name: n.Name, Labels: c.labels(n.Labels)}
	})
	return Cluster{&s}
}

func (c *cutter) policy(p *cluster.NetworkPolicy) *cluster.NetworkPolicy {
	smaller := *p
	if both := p.IsolatesIngress && p.IsolatesEgress; both && c.cut() {
		smaller.IsolatesIngress, smaller.Ingress = false, nil
	} else if both && c.cut() {
		smaller.IsolatesEgress, smaller.Egress = false, nil
	}
	smaller.Ingress = cutList(c, smaller.Ingress, c.rule)
	smaller.Egress = cutList(c, smaller.Egress, c.rule)
	smaller.Pods = *c.selector(&p.Pods)
	return &smaller
}

func (c *cutter) rule(r cluster.PolicyRule) cluster.PolicyRule {
	return cluster.PolicyRule{Peers: cutList(c, r.Peers, c.peer), Ports: cutList(c, r.Ports, whole)}
}

func (c *cutter) peer(p cluster.PolicyPeer) cluster.PolicyPeer {
	p.Except = cutList(c, p.Except, whole)
	if both := p.Namespaces != nil && p.Pods != nil; both && c.cut() {
		p.Namespaces = nil
	} else if both && c.cut() {
		p.Pods = nil
	}
	p.Namespaces, p.Pods = c.selector(p.Namespaces), c.selector(p.Pods)
	return p
}

func (c *cutter) selector(s *cluster.Selector) *cluster.Selector {
	if s == nil {
		return nil
	}
	return &cluster.Selector{Requirements: cutList(c, s.Requirements, whole)}
}

func (c *cutter) pod(p *cluster.Pod) *cluster.Pod {
	smaller := *p
	smaller.Labels = c.labels(p.Labels)
	smaller.Ports = cutList(c, p.Ports, whole)
	return &smaller
}

func (c *cutter) labels(labels cluster.Labels) cluster.Labels {
	rest := maps.Collect(labels.All())
	for key := range labels.All() {
		if c.cut() {
			delete(rest, key)
		}
	}
	return cluster.NewLabels(rest)
}
