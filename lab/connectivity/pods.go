// Package connectivity tests whether a network enforces NetworkPolicies: it has pods, policies for them, and checks,
// which are connections with their wanted outcomes. Those are written by hand from the API's documentation, not
// computed by code under test.
package connectivity

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/policies"
)

// The ports of every server. The TCP port 7100 is also called "web".
const (
	first  = 7100
	second = 7101
	third  = 7103
)

// Ports are the ports of every server.
var Ports = map[corev1.Protocol][]uint16{corev1.ProtocolTCP: {first, second, third}, corev1.ProtocolUDP: {first, second}}

// Elsewhere is the namespace of the pods outside of the policies' namespace.
const Elsewhere = "connectivity-elsewhere"

// Pod is one of the pods.
type Pod struct {
	policies.Pod
	// Home is the number of its node in the lab, from 0.
	Home int
}

// near and far are the nodes: clients are on the near one, servers on both.
const (
	near = iota
	far
)

// The kinds of servers, each of them on both nodes, and of clients that an egress policy selects.
var (
	serverKinds = []string{"open", "deny", "all", "selector", "namespace", "both", "ports", "named", "block"}
	clientKinds = []string{"out-deny", "out-all", "out-selector", "out-ports", "out-block"}
)

// Pods returns all pods. The caller sets addresses and nodes.
func Pods() []Pod {
	pod := func(home int, namespace, name string, labels map[string]string) Pod {
		return Pod{policies.Pod{Namespace: namespace, Name: name, Labels: labels, Web: first}, home}
	}
	role := func(name string) map[string]string { return map[string]string{"connectivity": name} }
	all := []Pod{
		pod(near, policies.Default, "friend", role("friend")),
		pod(near, policies.Default, "stranger", role("stranger")),
		pod(near, Elsewhere, "foreigner", role("friend")),
		pod(near, Elsewhere, "alien", role("stranger")),
		pod(far, policies.Default, "remote", role("friend")),
	}
	for _, kind := range serverKinds {
		all = append(all, pod(near, policies.Default, at(kind, near), role(kind)), pod(far, policies.Default, at(kind, far), role(kind)))
	}
	for _, kind := range clientKinds {
		all = append(all, pod(near, policies.Default, kind, role(kind)))
	}
	return all
}

// at returns the name of the pod of a kind on a node.
func at(kind string, home int) string { return kind + [...]string{"-near", "-far"}[home] }

// Address returns the address of a pod by its name, or of a node: NearNode or FarNode.
type Address func(name string) netip.Addr

// The names of the nodes themselves in checks.
const (
	NearNode = "near node"
	FarNode  = "far node"
)

// Objects returns the policies and namespaces. The caller adds the pods.
func Objects(address Address) []runtime.Object {
	role := func(name string) map[string]string { return map[string]string{"connectivity": name} }
	in := func(kind string, ports []networkingv1.NetworkPolicyPort, peers ...networkingv1.NetworkPolicyPeer) runtime.Object {
		return policies.Policy(policies.Default, "connectivity-"+kind, role(kind), policies.Ingress(ports, peers...), nil)
	}
	out := func(kind string, ports []networkingv1.NetworkPolicyPort, peers ...networkingv1.NetworkPolicyPeer) runtime.Object {
		return policies.Policy(policies.Default, "connectivity-"+kind, role(kind), nil, policies.Egress(ports, peers...))
	}
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	elsewhere := map[string]string{"connectivity": "elsewhere"}
	pods := func(name string) netip.Prefix { return netip.PrefixFrom(address(name), 24).Masked() }
	ports := []networkingv1.NetworkPolicyPort{policies.Port(tcp, first, 0), policies.Port(tcp, third-1, third), policies.Port(udp, second, 0)}
	wide := netip.PrefixFrom(address("friend"), 16).Masked()
	return []runtime.Object{
		policies.Namespace(policies.Default, nil), policies.Namespace(Elsewhere, elsewhere),
		policies.Policy(policies.Default, "connectivity-deny", role("deny"), []networkingv1.NetworkPolicyIngressRule{}, nil),
		in("all", nil),
		in("selector", nil, policies.Pods(role("friend"), nil)),
		in("namespace", nil, policies.Pods(nil, elsewhere)),
		in("both", nil, policies.Pods(role("friend"), elsewhere)),
		in("ports", ports),
		in("named", []networkingv1.NetworkPolicyPort{policies.Named(policies.WebPort)}),
		in("block", nil, policies.Block(pods("friend"), policies.Only(address("stranger"))), policies.Block(policies.Only(address(FarNode)))),
		policies.Policy(policies.Default, "connectivity-out-deny", role("out-deny"), nil, []networkingv1.NetworkPolicyEgressRule{}),
		out("out-all", nil),
		out("out-selector", nil, policies.Pods(role("open"), nil)),
		out("out-ports", ports),
		out("out-block", nil, policies.Block(wide, policies.Only(address("all-near")), policies.Only(address("all-far")))),
	}
}
