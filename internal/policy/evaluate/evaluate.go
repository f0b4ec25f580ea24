// Package evaluate evaluates traffic by NetworkPolicies as the documentation of the API words it, one object after the other.
// It is slow and has no state. `beeline policy explain` prints its decisions, and it is the reference for the tables of package
// policy; therefore it shares no code with the compiler.
//
// What the documentation leaves to implementations: pods with hostNetwork are addresses and are selected by nothing, ipBlocks
// apply to the addresses of pods too, ended pods do not exist, and a rule without ports allows every protocol. A pod that an
// invalid policy selects is isolated.
package evaluate

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Traffic is a new connection, after the translation of Services.
type Traffic struct {
	Source, Destination Endpoint
	// Protocol is any IP protocol number, including numbers that NetworkPolicies cannot name.
	Protocol cluster.Protocol
	// Port is the destination's, in host byte order; it is ignored for protocols without ports.
	Port uint16
}

// Endpoint is one end of traffic: a pod, an address, or a node. The address of a pod means the pod.
type Endpoint struct {
	// Pod names a pod; the zero value is none.
	Pod cluster.Key
	// Address is the address of this end. It is optional for a pod: the default is the one of the other end's family, or the
	// first.
	Address netip.Addr
	// Node says that this end is the node on which the other end's pod runs, by any address.
	Node bool
	// Masqueraded says that Address is a node's but the sender is not: the node forwards and masquerades. It counts as an
	// address then.
	Masqueraded bool
}

// Verdict is the result for a connection, with the reasons.
type Verdict struct {
	// Allowed says that both directions allow it.
	Allowed bool
	// Egress is the decision for the source, Ingress for the destination.
	Egress, Ingress Decision
	// Err reports an end that the snapshot does not have. All other fields are zero then.
	Err error
}

// Decision is the result for one end.
type Decision struct {
	Direction Direction
	// Pod is the pod at this end and Node its node; zero if policies cannot select this end.
	Pod     cluster.Key
	Node    string
	Allowed bool
	Reason  Reason
	// Isolating are the policies that select the pod in this direction: what none of them allows is denied.
	Isolating []cluster.Key
	// Invalid are the policies of Isolating that are invalid (see cluster.NetworkPolicy).
	Invalid []cluster.Key
	// Rules are all rules that allow it.
	Rules []Rule
	// Near are the rules of Isolating that allow only the peer or only the port, if none allows both.
	Near []Near
}

// Direction is the direction of traffic from the pod's perspective.
type Direction string

// The directions.
const (
	Ingress Direction = "ingress"
	Egress  Direction = "egress"
)

// Reason is why a decision was made.
type Reason string

// The reasons. Only the last two deny.
const (
	// ReasonNoPod allows: policies apply to pods.
	ReasonNoPod Reason = "not a pod that policies can select"
	// ReasonItself allows: a pod can always reach itself.
	ReasonItself Reason = "the pod itself"
	// ReasonNode allows: a pod and its own node can always reach each other.
	ReasonNode Reason = "the pod's own node"
	// ReasonNotIsolated allows: no policy selects the pod in this direction.
	ReasonNotIsolated Reason = "no policy selects the pod"
	// ReasonRule allows: a rule of a policy that selects the pod does.
	ReasonRule Reason = "a rule allows it"
	// ReasonNoRule denies: policies select the pod, and none of their rules allows it.
	ReasonNoRule Reason = "no rule allows it"
	// ReasonInvalid denies: a policy that selects the pod is invalid, so what it allows is unknown.
	ReasonInvalid Reason = "a policy that selects the pod is invalid"
)

// Rule names a rule of a policy.
type Rule struct {
	Policy    cluster.Key
	Direction Direction
	// Index counts from 0, as in the field's path.
	Index int
}

// String returns the policy and the path of the rule's field, such as "prod/web spec.ingress[0]".
func (r Rule) String() string { return fmt.Sprintf("%s spec.%s[%d]", r.Policy, r.Direction, r.Index) }

// Near is a rule that matches only the peer or only the port.
type Near struct {
	Rule
	// Peer says that the peer matches, otherwise the port does.
	Peer bool
}

// String names what the rule lacks.
func (n Near) String() string {
	if n.Peer {
		return fmt.Sprintf("%s allows the peer, but not the port", n.Rule)
	}
	return fmt.Sprintf("%s allows the port, but not the peer", n.Rule)
}

// Evaluate evaluates traffic by the policies of a snapshot.
func Evaluate(snapshot *cluster.Snapshot, t Traffic) Verdict {
	source, err := resolve(snapshot, t.Source, t.Destination)
	if err != nil {
		return Verdict{Err: fmt.Errorf("find the source: %w", err)}
	}
	destination, err := resolve(snapshot, t.Destination, t.Source)
	if err != nil {
		return Verdict{Err: fmt.Errorf("find the destination: %w", err)}
	}
	ask := question{snapshot: snapshot, protocol: t.Protocol, port: t.Port, destination: destination.pod}

	ask.direction, ask.subject, ask.peer = Egress, source.pod, destination
	egress := evaluateEnd(ask)
	ask.direction, ask.subject, ask.peer = Ingress, destination.pod, source
	ingress := evaluateEnd(ask)
	return Verdict{Allowed: egress.Allowed && ingress.Allowed, Egress: egress, Ingress: ingress}
}

// end is an end of traffic as policies see it.
type end struct {
	// pod is nil if policies do not see a pod.
	pod *cluster.Pod
	// address is what ipBlocks match; invalid if unknown.
	address netip.Addr
	// node is the name of the node if this end is one; ownNode says that it is the other end's.
	node    string
	ownNode bool
}

// resolve identifies an end.
func resolve(s *cluster.Snapshot, e, other Endpoint) (end, error) {
	if e.Node {
		return end{ownNode: true}, nil
	}
	address := e.Address.Unmap()
	if e.Pod != (cluster.Key{}) {
		pod := podNamed(s, e.Pod)
		if pod == nil {
			return end{}, fmt.Errorf("there is no pod %s", e.Pod)
		}
		if address.IsValid() && !slices.Contains(pod.Addresses, address) {
			return end{}, fmt.Errorf("%s is not an address of pod %s", address, e.Pod)
		}
		if !address.IsValid() {
			address = addressFor(s, pod, other)
		}
		if selectable(pod) {
			return end{pod: pod, address: address}, nil
		}
		if pod.HostNetwork && !pod.Ended {
			return end{address: address, node: pod.Node}, nil
		}
	}
	if !address.IsValid() {
		return end{}, fmt.Errorf("it is neither a pod that runs, nor an address, nor a node")
	}
	for pod := range s.Pods.All() {
		if selectable(pod) && slices.Contains(pod.Addresses, address) {
			return end{pod: pod, address: address}, nil
		}
	}
	for _, node := range s.Nodes {
		if !e.Masqueraded && slices.Contains(node.Addresses, address) {
			return end{address: address, node: node.Name}, nil
		}
	}
	return end{address: address}, nil
}

// selectable reports whether policies see a pod as a pod.
func selectable(p *cluster.Pod) bool { return !p.HostNetwork && !p.Ended }

func podNamed(s *cluster.Snapshot, key cluster.Key) *cluster.Pod {
	pod, _ := s.Pods.Find(key)
	return pod
}

// addressFor returns the address that a pod uses towards another end; invalid if it has none of that family.
func addressFor(s *cluster.Snapshot, pod *cluster.Pod, other Endpoint) netip.Addr {
	theirs := []netip.Addr{other.Address.Unmap()}
	if !other.Address.IsValid() {
		theirs = nil
		if p := podNamed(s, other.Pod); p != nil {
			theirs = p.Addresses
		}
	}
	for _, a := range pod.Addresses {
		if len(theirs) == 0 || slices.ContainsFunc(theirs, func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			return a
		}
	}
	return netip.Addr{}
}
