package policies

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Presence says which policies there are while a contender is measured.
type Presence int

// The presences.
const (
	// None is no policy anywhere.
	None Presence = iota
	// Elsewhere is policies that select other pods of the nodes, and none of the measured ones.
	Elsewhere
	// Allowing is a few policies that allow what is measured, in both directions and on both pods, by selector and port.
	Allowing
	// AmongMany is the same with Many policies and Many pods beside them.
	AmongMany
	// OneBlock and ManyBlocks allow what is measured, in both directions and on both pods, by ipBlocks: one, or MostBlocks.
	OneBlock
	ManyBlocks
)

// Many is how many policies, and how many pods, there are beside the measured ones, and MostBlocks how many ipBlocks.
const (
	Many       = 1000
	MostBlocks = 100000
)

// The labels of the measured pods, and of the bystanders that policies elsewhere select.
var (
	ClientLabels    = map[string]string{"role": "client", "bench": "measured"}
	ServerLabels    = map[string]string{"role": "server", "bench": "measured"}
	BystanderLabels = map[string]string{"role": "bystander"}
)

// Bystanders says whether each node has a pod more, which the policies select.
func (p Presence) Bystanders() bool { return p == Elsewhere }

// Governed says whether the measured pods are selected, and so what no policy allows is to be refused there.
func (p Presence) Governed() bool { return p >= Allowing }

// Counts are how many NetworkPolicies there are besides those for the measured pods, and pods beside those of the lab.
func (p Presence) Counts() (others, pods int) {
	if p == AmongMany {
		return Many, Many
	}
	return 0, 0
}

// Before are the objects that are there before any pod of the lab is.
func (p Presence) Before() ([]runtime.Object, error) {
	objects := []runtime.Object{Namespace(Default, nil)}
	if policies, pods := p.Counts(); policies > 0 {
		others, err := Fill(policies, pods)
		return append(objects, others...), err
	}
	if p != Elsewhere {
		return objects, nil
	}
	for i := range 10 {
		ingress := Ingress(TCPPorts(8080+i), Pods(map[string]string{"app": numbered("app", i)}, nil))
		egress := Egress(TCPPorts(443, 5432), Pods(map[string]string{"app": numbered("app", i+1)}, nil))
		objects = append(objects, Policy(Default, numbered("elsewhere", i), BystanderLabels, ingress, egress))
	}
	return objects, nil
}

// ForMeasured are the policies for the measured pods, which allow these TCP ports between them, and from the client to an
// address that is no pod's, and nothing else.
func (p Presence) ForMeasured(ports []int, outside netip.Addr) []*networkingv1.NetworkPolicy {
	allowed := TCPPorts(ports...)
	switch p {
	case OneBlock:
		return blockPolicies(1, map[string]string{"bench": "measured"}, allowed)
	case ManyBlocks:
		return blockPolicies(MostBlocks, map[string]string{"bench": "measured"}, allowed)
	case Allowing, AmongMany:
		client, server := Pods(ClientLabels, nil), Pods(ServerLabels, nil)
		return []*networkingv1.NetworkPolicy{
			Policy(Default, "client-in", ClientLabels, Ingress(allowed, server), nil),
			Policy(Default, "client-out", ClientLabels, nil, Egress(allowed, server)),
			Policy(Default, "client-outside", ClientLabels, nil, Egress(allowed, Block(Only(outside)))),
			Policy(Default, "server-in", ServerLabels, Ingress(allowed, client), nil),
			Policy(Default, "server-out", ServerLabels, nil, Egress(allowed, client)),
		}
	}
	return nil
}
