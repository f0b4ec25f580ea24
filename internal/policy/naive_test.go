package policy

import (
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// naive judges by looking at every policy and every rule, with nothing made before.
type naive struct {
	s *cluster.Snapshot
	// subject is the pod asked about; nil to find it in the snapshot.
	subject *cluster.Pod
}

// judge tells whether something is allowed, and by which policy, the first by name.
func (n naive) judge(q question) (allowed bool, by cluster.Key) {
	if slices.Contains(n.s.Nodes[0].Addresses, q.peer) {
		return true, cluster.Key{}
	}
	pod := n.subject
	if pod == nil {
		pod = n.podOf(func(p *cluster.Pod) bool { return p.Key() == q.pod })
	}
	peer := n.podOf(func(p *cluster.Pod) bool {
		return !p.HostNetwork && !p.Ended && slices.Contains(p.Addresses, q.peer)
	})
	isolated := false
	for _, p := range n.s.NetworkPolicies {
		isolates, rules := p.IsolatesIngress, p.Ingress
		if q.direction == Egress {
			isolates, rules = p.IsolatesEgress, p.Egress
		}
		if !isolates || p.Namespace != pod.Namespace || !n.selects(p.Pods, pod.Labels) {
			continue
		}
		isolated = true
		if p.Wrong != "" {
			return false, cluster.Key{}
		}
		if allowed {
			continue
		}
		for _, r := range rules {
			if n.peers(p, r.Peers, q.peer, peer) && n.ports(r.Ports, q, pod, peer) {
				allowed, by = true, p.Key()
				break
			}
		}
	}
	return allowed || !isolated, by
}

func (n naive) podOf(is func(*cluster.Pod) bool) *cluster.Pod {
	for p := range n.s.Pods.All() {
		if is(p) {
			return p
		}
	}
	return nil
}

func (n naive) peers(p *cluster.NetworkPolicy, peers []cluster.PolicyPeer, addr netip.Addr, pod *cluster.Pod) bool {
	for _, peer := range peers {
		if peer.Block.IsValid() {
			if peer.Block.Contains(addr) && !slices.ContainsFunc(peer.Except, func(e netip.Prefix) bool { return e.Contains(addr) }) {
				return true
			}
			continue
		}
		if pod == nil {
			continue
		}
		in := pod.Namespace == p.Namespace
		if peer.Namespaces != nil {
			labels := cluster.NewLabels(map[string]string{"kubernetes.io/metadata.name": pod.Namespace})
			for _, ns := range n.s.Namespaces {
				if ns.Name == pod.Namespace {
					labels = ns.Labels
				}
			}
			in = n.selects(*peer.Namespaces, labels)
		}
		if in && (peer.Pods == nil || n.selects(*peer.Pods, pod.Labels)) {
			return true
		}
	}
	return len(peers) == 0
}

func (n naive) ports(ports []cluster.PolicyPort, q question, subject, peer *cluster.Pod) bool {
	named := subject
	if q.direction == Egress {
		named = peer
	}
	for _, port := range ports {
		if uint8(port.Protocol) != q.protocol {
			continue
		}
		switch {
		case port.Name == "" && port.First == 0, port.Name == "" && port.First <= q.port && q.port <= port.Last:
			return true
		case port.Name != "" && named != nil:
			for _, p := range named.Ports {
				if p.Name == port.Name && p.Protocol == port.Protocol && p.Number == q.port {
					return true
				}
			}
		}
	}
	return len(ports) == 0
}

func (n naive) selects(s cluster.Selector, labels cluster.Labels) bool {
	of := map[string]string{}
	for k, v := range labels.All() {
		of[k] = v
	}
	for _, r := range s.Requirements {
		value, has := of[r.Key]
		met := map[string]bool{
			"In": has && slices.Contains(r.Values, value), "NotIn": !has || !slices.Contains(r.Values, value), "Exists": has, "DoesNotExist": !has,
		}[string(r.Operator)]
		if !met {
			return false
		}
	}
	return true
}
