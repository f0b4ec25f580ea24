package evaluate

import (
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// question is traffic from the perspective of one end.
type question struct {
	snapshot  *cluster.Snapshot
	direction Direction
	// subject is the pod at this end; nil if it is none.
	subject *cluster.Pod
	peer    end
	// destination is the pod with the ports: the peer for egress, the subject for ingress; nil if that is no pod.
	destination *cluster.Pod
	protocol    cluster.Protocol
	port        uint16
}

// evaluateEnd decides for one end. "Traffic to and from the node where a Pod is running is always allowed, regardless of the IP
// address of the Pod or the node", and "a pod cannot block access to itself".
func evaluateEnd(q question) Decision {
	j := Decision{Direction: q.direction, Allowed: true}
	if q.subject != nil {
		j.Pod, j.Node = q.subject.Key(), q.subject.Node
	}
	switch {
	case q.subject == nil:
		j.Reason = ReasonNoPod
	case q.peer.pod == q.subject:
		j.Reason = ReasonItself
	case q.peer.ownNode, q.peer.node != "" && q.peer.node == q.subject.Node:
		j.Reason = ReasonNode
	default:
		networkPolicies(q, &j)
	}
	return j
}

// networkPolicies is networking.k8s.io/v1. "By default, a pod is non-isolated"; once any policy selects it in a direction, what
// is allowed is what any of the policies allows: they "do not conflict; they are additive".
func networkPolicies(q question, j *Decision) {
	for _, policy := range q.snapshot.NetworkPolicies {
		isolates, rules := policy.IsolatesIngress, policy.Ingress
		if q.direction == Egress {
			isolates, rules = policy.IsolatesEgress, policy.Egress
		}
		if !isolates || policy.Namespace != q.subject.Namespace || !matches(policy.Pods, q.subject.Labels) {
			continue
		}
		j.Isolating = append(j.Isolating, policy.Key())
		if policy.Invalid != "" {
			j.Invalid = append(j.Invalid, policy.Key())
		}
		for i, r := range rules {
			rule := Rule{Policy: policy.Key(), Direction: q.direction, Index: i}
			peer, port := allowsPeer(q, policy, r), allowsPort(q, r)
			switch {
			case peer && port:
				j.Rules = append(j.Rules, rule)
			case peer || port:
				j.Near = append(j.Near, Near{Rule: rule, Peer: peer})
			}
		}
	}
	switch {
	case len(j.Isolating) == 0:
		j.Reason = ReasonNotIsolated
	case len(j.Invalid) > 0:
		j.Allowed, j.Reason, j.Rules, j.Near = false, ReasonInvalid, nil, nil
	case len(j.Rules) > 0:
		j.Reason, j.Near = ReasonRule, nil
	default:
		j.Allowed, j.Reason = false, ReasonNoRule
	}
}

// allowsPeer: "If this field is empty or missing, this rule matches all sources [destinations]."
func allowsPeer(q question, policy *cluster.NetworkPolicy, r cluster.PolicyRule) bool {
	return len(r.Peers) == 0 || slices.ContainsFunc(r.Peers, func(p cluster.PolicyPeer) bool {
		return isPeer(q.snapshot, policy, p, q.peer)
	})
}

// allowsPort: "If this field is empty or missing, this rule matches all ports (traffic not restricted by port)."
func allowsPort(q question, r cluster.PolicyRule) bool {
	return len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(p cluster.PolicyPort) bool { return isPort(q, p) })
}
