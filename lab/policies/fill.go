package policies

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The shape of the pods and policies that are only there to be many: namespaces of twenty pods and twenty policies, and
// among the pods of a namespace some applications that talk to each other.
const (
	perNamespace = 20
	applications = 5
	teams        = 7
)

// Of the other pods, LocalOthers run on the second of the lab's nodes, about as many as a kubelet takes. The rest is
// spread over as many nodes as a cluster of their number has.
const (
	LocalOthers = 100
	otherNodes  = 20
)

// Where their addresses are, unless the lab makes the pods: on LocalNode above those that the lab's own pods get,
// elsewhere from the beginning.
const (
	localNode    = 2
	firstLocal   = 150
	firstOfNodes = 10 // third byte of the addresses on the nodes that are not in the lab
	firstOnNode  = 2
)

// LocalNode is the node of the lab that has LocalOthers.
const LocalNode = "n2"

// isLocal reports whether the other pod number i is on LocalNode: two of each namespace, which belong to other
// applications from one namespace to the next.
func isLocal(i int) bool {
	return i < LocalOthers/2*perNamespace && i%perNamespace/2 == i/perNamespace%(perNamespace/2)
}

// Others are the pods that are only there to be many. Those on LocalNode come first.
func Others() []Pod {
	var here, elsewhere []Pod
	for i := range Many {
		pod := Pod{
			Namespace: otherNamespace(i), Name: numbered("pod", i), Web: 8080,
			Labels: map[string]string{"app": numbered("app", i%applications), "instance": numbered("pod", i)},
		}
		if isLocal(i) {
			pod.Node = LocalNode
			pod.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 77, localNode, byte(firstLocal + len(here))})}
			here = append(here, pod)
			continue
		}
		third := firstOfNodes + len(elsewhere)%otherNodes
		pod.Node = numbered("other", third)
		pod.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 77, byte(third), byte(firstOnNode + len(elsewhere)/otherNodes)})}
		elsewhere = append(elsewhere, pod)
	}
	return append(here, elsewhere...)
}

func otherNamespace(i int) string { return numbered("filler", i/perNamespace) }

// otherNamespaces are those of the other pods and policies.
func otherNamespaces() []runtime.Object {
	var objects []runtime.Object
	for i := range Many / perNamespace {
		objects = append(objects, Namespace(otherNamespace(i*perNamespace), map[string]string{"team": numbered("team", i%teams)}))
	}
	return objects
}

// Fill are the other policies and pods with their namespaces, for a network without an API server.
func Fill() []runtime.Object {
	objects := otherNamespaces()
	for _, pod := range Others() {
		objects = append(objects, pod.Object())
	}
	return append(objects, OtherPolicies()...)
}

// OtherPolicies are policies for the other pods: for those of an application, what they take from another one and from
// a team's namespaces, and, every fourth, where they may connect to.
func OtherPolicies() []runtime.Object {
	of := func(n int) map[string]string { return map[string]string{"app": numbered("app", n%applications)} }
	var objects []runtime.Object
	for i := range Many {
		ingress := Ingress(TCPPorts(8080, 9000+i%100), Pods(of(i+1), nil), Pods(of(i+2), map[string]string{"team": numbered("team", i%teams)}))
		var egress []networkingv1.NetworkPolicyEgressRule
		if i%4 == 0 {
			block := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i / 4), 0}), 24)
			egress = Egress(TCPPorts(443, 5432), Pods(of(i+3), nil), Block(block, Only(block.Addr().Next())))
		}
		objects = append(objects, Policy(otherNamespace(i), numbered("policy", i), of(i), ingress, egress))
	}
	return objects
}
