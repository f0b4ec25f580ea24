// Package evaluate judges traffic by NetworkPolicies the way the documentation of the API words it, one object after the other.
// It is slow and keeps nothing: `beeline policy explain` tells people its judgements, and the tables of package policy are tested
// against it. It therefore shares no code with what compiles them.
//
// What the documentation leaves to implementations is decided as Beeline decides it: pods in their node's network are
// addresses and are selected by nothing, ipBlocks hold for the addresses of pods too, pods that have ended are nobody, and a
// rule without ports allows every protocol. A pod that is selected by a policy which cannot be understood is closed.
package evaluate

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Traffic is a connection that is about to begin, after the translation of Services: its ends are those that talk.
type Traffic struct {
	Source, Destination Endpoint
	// Protocol is the number of any IP protocol, also of those that NetworkPolicies cannot name.
	Protocol cluster.Protocol
	// Port is the destination's; it means nothing to protocols without ports.
	Port uint16
}

// Endpoint is one end of traffic: a pod, an address, or a node. An address that a pod has is that pod.
type Endpoint struct {
	// Pod names a pod; the zero value is none.
	Pod cluster.Key
	// Address is the one that is used. A pod's may be left out: it is the one of the other end's family then, or the first.
	Address netip.Addr
	// Node says that this is the node on which the pod at the other end runs, by whatever address.
	Node bool
	// Masqueraded says that who sends from Address only bears it: it is a node's, which forwards it so. It counts as an address then.
	Masqueraded bool
}

// Verdict is what becomes of traffic, and why.
type Verdict struct {
	// Allowed says that both directions allow it.
	Allowed bool
	// Egress is about the source, Ingress about the destination.
	Egress, Ingress Judgement
	// Err says why the question has no answer: the snapshot does not know an end. Nothing else is set then.
	Err error
}

// Judgement is what policies say to one end.
type Judgement struct {
	Direction Direction
	// Pod is whom they are asked about, and Node where it runs; zero values if that end is no pod that they can select.
	Pod     cluster.Key
	Node    string
	Allowed bool
	Reason  Reason
	// Isolating are the policies that select the pod in this direction: what none of them allows is forbidden.
	Isolating []cluster.Key
	// Wrong are those of Isolating that cannot be put into force (see cluster.NetworkPolicy).
	Wrong []cluster.Key
	// Rules are all that allow it.
	Rules []Rule
	// Near are the rules of Isolating that allow one of the peer and the port, if none allows both.
	Near []Near
}

// Direction is seen from the pod.
type Direction string

// The directions.
const (
	Ingress Direction = "ingress"
	Egress  Direction = "egress"
)

// Reason is what decided.
type Reason string

// The reasons. The last two alone forbid.
const (
	// ReasonNoPod allows: policies are about pods.
	ReasonNoPod Reason = "not a pod that policies can select"
	// ReasonItself allows: a pod may always talk to itself.
	ReasonItself Reason = "the pod itself"
	// ReasonNode allows: a pod may always talk with the node that it runs on.
	ReasonNode Reason = "the pod's own node"
	// ReasonNotIsolated allows: no policy selects the pod in this direction.
	ReasonNotIsolated Reason = "no policy selects the pod"
	// ReasonRule allows: rules of policies that select the pod do.
	ReasonRule Reason = "a rule allows it"
	// ReasonNoRule forbids: policies select the pod, and no rule of theirs allows it.
	ReasonNoRule Reason = "no rule allows it"
	// ReasonWrong forbids: policies select the pod of which one cannot be put into force, so that nobody knows what it forbids.
	ReasonWrong Reason = "a policy that selects the pod is wrong"
)

// Rule names a rule of a policy.
type Rule struct {
	Policy    cluster.Key
	Direction Direction
	// Index counts from 0, as in the field's path.
	Index int
}

// Near is a rule that allows a half of what is asked.
type Near struct {
	Rule
	// Peer says that it is the peer that is allowed, otherwise it is the port.
	Peer bool
}

// Evaluate judges traffic by the policies of a snapshot.
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
	egress := judge(ask)
	ask.direction, ask.subject, ask.peer = Ingress, destination.pod, source
	ingress := judge(ask)
	return Verdict{Allowed: egress.Allowed && ingress.Allowed, Egress: egress, Ingress: ingress}
}

// end is an end of traffic as policies see it.
type end struct {
	// pod is nil if policies cannot tell that it is one.
	pod *cluster.Pod
	// address is what ipBlocks are asked about; invalid if it is not known.
	address netip.Addr
	// node is the name of the node that this end is; ownNode says that it is the other end's.
	node    string
	ownNode bool
}

// resolve finds out who an end is.
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

// selectable tells whether policies see a pod as a pod.
func selectable(p *cluster.Pod) bool { return !p.HostNetwork && !p.Ended }

func podNamed(s *cluster.Snapshot, key cluster.Key) *cluster.Pod {
	pod, _ := s.Pods.Find(key)
	return pod
}

// addressFor gives the address of a pod by which it talks to another end; invalid if it has none of that family.
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
