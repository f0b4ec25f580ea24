package policies

import (
	"fmt"
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

// The other pods are spread over as many nodes as a cluster of their number has, the first two of which are the lab's.
// Their addresses are those that pods there could have, above those that the lab's own pods get.
const (
	otherNodes   = 22
	firstOnNode  = 150
	firstOfNodes = 10 // third byte of the addresses on the nodes that are not in the lab
)

// Other is the pod number i (from 0) of those that are only there to be many.
func Other(i int) Pod {
	node := i % otherNodes
	third := node + 1
	if node >= 2 {
		third = firstOfNodes + node
	}
	return Pod{
		Namespace: numbered("filler", i/perNamespace), Name: numbered("pod", i), Node: fmt.Sprintf("n%d", third),
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 77, byte(third), byte(firstOnNode + i/otherNodes)})},
		Labels:    map[string]string{"app": numbered("app", i%applications), "instance": numbered("pod", i)},
		Web:       8080,
	}
}

// mostOthers is how many of them have addresses.
const mostOthers = otherNodes * (256 - firstOnNode)

// Fill are pods, and policies for them, with their namespaces: what a larger cluster has beside the pods that are measured.
func Fill(policies, pods int) ([]runtime.Object, error) {
	if pods > mostOthers {
		return nil, fmt.Errorf("fill with %d pods: want up to %d", pods, mostOthers)
	}
	var objects []runtime.Object
	for i := range max(policies, pods) {
		if i%perNamespace == 0 {
			n := i / perNamespace
			objects = append(objects, Namespace(numbered("filler", n), map[string]string{"team": numbered("team", n%teams)}))
		}
	}
	for i := range pods {
		objects = append(objects, Other(i).Object())
	}
	for i := range policies {
		objects = append(objects, otherPolicy(i))
	}
	return objects, nil
}

// otherPolicy is the policy number i: what the pods of an application take from another one and from a team's namespaces,
// and, every fourth, where they may connect to.
func otherPolicy(i int) *networkingv1.NetworkPolicy {
	of := func(n int) map[string]string { return map[string]string{"app": numbered("app", n%applications)} }
	ingress := Ingress(TCPPorts(8080, 9000+i%100), Pods(of(i+1), nil), Pods(of(i+2), map[string]string{"team": numbered("team", i%teams)}))
	var egress []networkingv1.NetworkPolicyEgressRule
	if i%4 == 0 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i / 4), 0}), 24)
		egress = Egress(TCPPorts(443, 5432), Pods(of(i+3), nil), Block(block, Only(block.Addr().Next())))
	}
	return Policy(numbered("filler", i/perNamespace), numbered("policy", i), of(i), ingress, egress)
}
