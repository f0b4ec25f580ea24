package policies

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Presence says which policies exist while a network is measured.
type Presence int

// The presences.
const (
	// None is no policy anywhere.
	None Presence = iota
	// Elsewhere is policies that select other pods of the nodes, and none of the measured ones.
	Elsewhere
	// Allowing is a few policies that allow what is measured, in both directions and on both pods, by selector and
	// port.
	Allowing
	// AmongMany is the same with Many policies and Many pods beside them.
	AmongMany
	// OneBlock and ManyBlocks allow what is measured, in both directions and on both pods, by ipBlocks: one, or
	// MostBlocks.
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

// Bystanders reports whether each node has another pod, which the policies select.
func (p Presence) Bystanders() bool { return p == Elsewhere }

// Selects reports whether policies select the measured pods, so that what no policy allows is denied there.
func (p Presence) Selects() bool { return p >= Allowing }

// External reports whether the API server lacks the addresses of the measured pods, so that each node takes the other's
// pod for an external address: ipBlocks are not looked up for known pods.
func (p Presence) External() bool { return p.Blocks() > 0 }

// Blocks is how many ipBlocks select peers of each measured pod.
func (p Presence) Blocks() int { return map[Presence]int{OneBlock: 1, ManyBlocks: MostBlocks}[p] }

// Before are the objects that exist before any pod of the lab.
func (p Presence) Before() []runtime.Object {
	objects := []runtime.Object{Namespace(Default, nil)}
	if p == AmongMany {
		objects = append(objects, otherNamespaces()...)
		for _, pod := range Others()[LocalOthers:] {
			objects = append(objects, pod.Object())
		}
	}
	return objects
}

// Beside are the pods on LocalNode that the lab makes beside the measured ones and the bystanders. Their addresses are
// what they get.
func (p Presence) Beside() []Pod {
	if p != AmongMany {
		return nil
	}
	pods := Others()[:LocalOthers]
	for i := range pods {
		pods[i].Addresses = nil
	}
	return pods
}

// Others are the policies that select none of the measured pods.
func (p Presence) Others() []runtime.Object {
	switch p {
	case AmongMany:
		return OtherPolicies()
	case Elsewhere:
		var objects []runtime.Object
		for i := range 10 {
			ingress := Ingress(TCPPorts(8080+i), Pods(map[string]string{"app": numbered("app", i)}, nil))
			egress := Egress(TCPPorts(443, 5432), Pods(map[string]string{"app": numbered("app", i+1)}, nil))
			objects = append(objects, Policy(Default, numbered("elsewhere", i), BystanderLabels, ingress, egress))
		}
		return objects
	}
	return nil
}

// ForMeasured are the policies for the measured pods, which allow these TCP ports between them and nothing else.
func (p Presence) ForMeasured(ports []int, measured ...netip.Addr) (objects []runtime.Object) {
	allowed := TCPPorts(ports...)
	var list []*networkingv1.NetworkPolicy
	switch p {
	case OneBlock:
		list = blockPolicies([]netip.Prefix{testbed.PodNetworkIPv4}, map[string]string{"bench": "measured"}, allowed)
	case ManyBlocks:
		list = blockPolicies(blocks(MostBlocks, measured...), map[string]string{"bench": "measured"}, allowed)
	case Allowing, AmongMany:
		client, server := Pods(ClientLabels, nil), Pods(ServerLabels, nil)
		list = []*networkingv1.NetworkPolicy{
			Policy(Default, "client-in", ClientLabels, Ingress(allowed, server), nil),
			Policy(Default, "client-out", ClientLabels, nil, Egress(allowed, server)),
			Policy(Default, "server-in", ServerLabels, Ingress(allowed, client), nil),
			Policy(Default, "server-out", ServerLabels, nil, Egress(allowed, client)),
		}
	}
	for _, policy := range list {
		objects = append(objects, policy)
	}
	return objects
}
