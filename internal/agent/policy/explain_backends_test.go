package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// market is two nodes with a server of a Service each, and a client on n1. Policies allow the client to connect to
// servers, and servers to be reached from an external client and from pods of the client's kind.
func market() *cluster.Snapshot {
	app := func(name string) *cluster.Selector {
		return &cluster.Selector{Requirements: []cluster.Requirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{name}}}}
	}
	pod := func(name, node, app, address string) *cluster.Pod {
		return &cluster.Pod{Namespace: "m", Name: name, Node: node, Labels: cluster.NewLabels(map[string]string{"app": app}), Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	}
	addrs := func(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }
	return &cluster.Snapshot{
		Pods: cluster.ListOf(pod("client", "n1", "client", "10.1.1.2"), pod("web1", "n1", "web", "10.1.1.3"), pod("web2", "n2", "web", "10.1.2.3")),
		NetworkPolicies: []*cluster.NetworkPolicy{
			{Namespace: "m", Name: "client", Pods: *app("client"), IsolatesEgress: true, Egress: []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Pods: app("web")}}}}},
			{Namespace: "m", Name: "web", Pods: *app("web"), IsolatesIngress: true, Ingress: []cluster.PolicyRule{{
				Peers: []cluster.PolicyPeer{{Block: netip.MustParsePrefix("203.0.113.9/32")}, {Pods: app("client")}},
			}}},
		},
		Nodes: []cluster.Node{
			{Name: "n1", Addresses: addrs("172.30.0.1"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}},
			{Name: "n2", Addresses: addrs("172.30.0.2"), ExternalIPs: addrs("192.0.2.2"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}},
		},
		Services: []*cluster.Service{{
			Namespace: "m", Name: "web", ClusterIPs: addrs("10.96.0.5"), ExternalIPs: addrs("198.51.100.5"), LoadBalancerIPs: addrs("198.51.100.6"),
			Ports: []cluster.ServicePort{{Protocol: cluster.TCP, Number: 80, NodePort: 30080}},
		}},
		EndpointSlices: cluster.ListOf(&cluster.EndpointSlice{
			Namespace: "m", Name: "web-x", Service: "web", Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Number: 8080}},
			Endpoints: []cluster.Endpoint{
				{Address: netip.MustParseAddr("10.1.1.3"), Node: "n1", Ready: true}, {Address: netip.MustParseAddr("10.1.2.3"), Ready: true},
			},
		}),
	}
}

// inShort summarizes an answer: the destination, what each end sees instead of the other, and the decision of each
// end's policies.
func inShort(a *agentapi.PolicyAnswer) string {
	var all []string
	for _, w := range a.Paths {
		name, _, _ := strings.Cut(strings.TrimPrefix(w.To, "m/"), " ")
		if w.SentTo != "" {
			name += " by " + w.SentTo
		}
		if w.SeenAs != "" {
			name += " as " + w.SeenAs
		}
		if w.Unused {
			name += " unused"
		}
		for _, j := range []agentapi.PolicyDecision{w.Egress, w.Ingress} {
			name += map[bool]string{true: " +", false: " -"}[j.Allowed]
		}
		all = append(all, name)
	}
	return strings.Join(all, "; ")
}

// askedIn is one question of a table, and the answer in short, or its error.
type askedIn struct{ from, to, want string }

func (c askedIn) check(t *testing.T, x explainer) {
	t.Helper()
	to, port, _ := strings.Cut(c.to, ":")
	a, err := x.answer(agentapi.PolicyQuestion{From: c.from, To: to, Port: port, Protocol: "TCP"})
	got := ""
	if err != nil {
		got = err.Error()
	} else {
		got = inShort(a)
		forbids := func(path string) bool { return !strings.Contains(path, "unused") && strings.Contains(path, " -") }
		if a.Allowed == slices.ContainsFunc(strings.Split(got, "; "), forbids) {
			t.Errorf("%s to %s: %s, and allowed is %t", c.from, c.to, got, a.Allowed)
		}
	}
	if diff := cmp.Diff(c.want, got); diff != "" {
		t.Errorf("%s to %s (-want +got):\n%s", c.from, c.to, diff)
	}
}

// A NodePort is translated before a pod's policies only on its own node. Another node translates the arriving packet,
// and masquerades it to remote backends. Every node knows a Service's own addresses.
func TestExplainNodePorts(t *testing.T) {
	s := market()
	x := explainer{options: Options{ExternalIPs: anyExternalIP, Services: lb.ModeEBPF, Node: "n1"}, snapshot: s, reported: s}
	for _, c := range []askedIn{
		{"m/client", "172.30.0.1:30080", "web1 + +; web2 + +"},
		{"m/client", "172.30.0.2:30080", "web1 by 172.30.0.2:30080 as 172.30.0.2 - -; web2 by 172.30.0.2:30080 - +"},
		{"10.1.1.2", "172.30.0.2:30080", "web1 by 172.30.0.2:30080 as 172.30.0.2 - -; web2 by 172.30.0.2:30080 - +"},
		{"10.1.2.77", "172.30.0.2:30080", "web1 + -; web2 + -"}, // an unknown pod of n2
		{"203.0.113.9", "172.30.0.1:30080", "web1 by 172.30.0.1:30080 + +; web2 by 172.30.0.1:30080 as 172.30.0.1 + -"},
		{"203.0.113.9", "172.30.0.2:30080", "web1 by 172.30.0.2:30080 as 172.30.0.2 + -; web2 by 172.30.0.2:30080 + +"},
		{"203.0.113.9", "192.0.2.2:30080", "web1 by 192.0.2.2:30080 as 172.30.0.2 + -; web2 by 192.0.2.2:30080 + +"},
		{"172.30.0.2", "172.30.0.1:30080", "web1 by 172.30.0.1:30080 + -; web2 by 172.30.0.1:30080 as 172.30.0.1 + -"},
		{"172.30.0.2", "172.30.0.2:30080", "web1 + -; web2 + +"},
		{"node", "172.30.0.2:30080", "web1 as 172.30.0.2 + -; web2 as 172.30.0.2 + +"},
		{"node", "10.96.0.5:80", "web1 + +; web2 + +"},
		{"m/client", "10.96.0.5:80", "web1 + +; web2 + +"},
		{"m/client", "m/web:80", "web1 + +; web2 + +"},
		{"m/client", "198.51.100.5:80", "web1 + +; web2 + +"},
		{"m/client", "198.51.100.6:80", "web1 + +; web2 + +"},
		// a load balancer may send it to either node
		{"203.0.113.9", "198.51.100.6:80", "web1 by 198.51.100.6:80 + +; web1 by 198.51.100.6:80 as 172.30.0.2 + -; web2 by 198.51.100.6:80 + +; web2 by 198.51.100.6:80 as 172.30.0.1 + -"},
		{"203.0.113.8", "198.51.100.6:80", "web1 by 198.51.100.6:80 + -; web2 by 198.51.100.6:80 + -"},
	} {
		c.check(t, x)
	}

	s.NetworkPolicies[0].Egress[0].Peers[0] = cluster.PolicyPeer{Block: netip.MustParsePrefix("172.30.0.0/24")}
	s.NetworkPolicies[1].Ingress[0].Peers[0] = cluster.PolicyPeer{Block: netip.MustParsePrefix("172.30.0.2/32")}
	for _, c := range []askedIn{
		{"m/client", "172.30.0.1:30080", "web1 - +; web2 - +"},
		{"m/client", "172.30.0.2:30080", "web1 by 172.30.0.2:30080 as 172.30.0.2 + +; web2 by 172.30.0.2:30080 + +"},
		{"203.0.113.9", "172.30.0.2:30080", "web1 by 172.30.0.2:30080 as 172.30.0.2 + +; web2 by 172.30.0.2:30080 + -"},
	} {
		c.check(t, x)
	}
}

// With DSR a NodePort's backends see the client wherever they are, unless it is on their own node or the Service has
// affinity; behind other addresses they do not.
func TestExplainNodePortsDirect(t *testing.T) {
	s := market()
	x := explainer{options: Options{ExternalIPs: anyExternalIP, Services: lb.ModeEBPF, DSR: true, Node: "n1"}, snapshot: s, reported: s}
	nodePort := askedIn{"203.0.113.9", "172.30.0.1:30080", "web1 by 172.30.0.1:30080 + +; web2 by 172.30.0.1:30080 + +"}
	nodePort.check(t, x)
	// web1 is on the client's node, which accepts no packet with its own source from the wire: n2 replies for it.
	askedIn{"m/client", "172.30.0.2:30080", "web1 by 172.30.0.2:30080 as 172.30.0.2 - -; web2 by 172.30.0.2:30080 - +"}.check(t, x)
	s.NetworkPolicies[0].Egress[0].Peers = []cluster.PolicyPeer{{Block: netip.MustParsePrefix("172.30.0.0/24")}}
	askedIn{"m/client", "172.30.0.2:30080", "web1 by 172.30.0.2:30080 as 172.30.0.2 + -; web2 by 172.30.0.2:30080 + +"}.check(t, x)
	askedIn{"203.0.113.9", "198.51.100.5:80", "web1 by 198.51.100.5:80 + +; web1 by 198.51.100.5:80 as 172.30.0.2 + -; web2 by 198.51.100.5:80 + +; web2 by 198.51.100.5:80 as 172.30.0.1 + -"}.check(t, x)
	s.Services[0].Affinity = 1
	nodePort.want = "web1 by 172.30.0.1:30080 + +; web2 by 172.30.0.1:30080 as 172.30.0.1 + -"
	nodePort.check(t, x)
}

// Traffic policy Local keeps connections of its side on the node, where backends see the client. It does not apply to
// pods that use external addresses.
func TestExplainLocalTrafficPolicies(t *testing.T) {
	s := market()
	s.Services[0].ExternalLocal, s.Services[0].InternalLocal = true, true
	s.EndpointSlices.Slice()[0].Endpoints[1].Node = "n2"
	x := explainer{options: Options{ExternalIPs: anyExternalIP, Services: lb.ModeEBPF, DSR: true, Node: "n1"}, snapshot: s, reported: s}
	for _, c := range []askedIn{
		{"203.0.113.9", "172.30.0.1:30080", "web1 by 172.30.0.1:30080 + +; web2 by 172.30.0.1:30080 as 172.30.0.1 unused + -"},
		{"203.0.113.9", "198.51.100.6:80", "web1 by 198.51.100.6:80 + +; web2 by 198.51.100.6:80 + +"},
		{"m/client", "172.30.0.1:30080", "web1 + +; web2 + +"},
		{"m/client", "172.30.0.2:30080", "web1 by 172.30.0.2:30080 as 172.30.0.2 unused - -; web2 by 172.30.0.2:30080 - +"},
		{"m/client", "198.51.100.6:80", "web1 + +; web2 + +"},
		{"m/client", "10.96.0.5:80", "web1 + +; web2 unused + +"},
		{"m/client", "m/web:80", "web1 + +; web2 unused + +"},
	} {
		c.check(t, x)
	}
	nodes := s.Nodes
	s.Nodes = nil // not listed yet
	askedIn{"203.0.113.9", "198.51.100.6:80", "web1 by 198.51.100.6:80 + +; web2 by 198.51.100.6:80 + +"}.check(t, x)
	s.Nodes = nodes
	s.EndpointSlices.Slice()[0].Endpoints = s.EndpointSlices.Slice()[0].Endpoints[1:]
	const none = "destination: Service m/web has no backend that connections from %s to %s go to: none is ready on the node that chooses, and its traffic policy is Local"
	askedIn{"m/client", "10.96.0.5:80", strings.NewReplacer("from %s", "from m/client", "to %s", "to 10.96.0.5").Replace(none)}.check(t, x)
	askedIn{"203.0.113.9", "172.30.0.1:30080", strings.NewReplacer("from %s", "from 203.0.113.9", "to %s", "to 172.30.0.1").Replace(none)}.check(t, x)
}

// kube-proxy chooses behind the sender's policies, and masquerades connections to external addresses wherever the
// backend is; a pod that is its own backend still sees itself.
func TestExplainNodePortsBesideKubeProxy(t *testing.T) {
	s := market()
	x := explainer{options: Options{ExternalIPs: anyExternalIP, Services: lb.ModeKubeProxy, Node: "n1"}, snapshot: s, reported: s}
	for _, c := range []askedIn{
		{"m/client", "172.30.0.1:30080", "web1 by 172.30.0.1:30080 as 172.30.0.1 + -; web2 by 172.30.0.1:30080 as 172.30.0.1 + -"},
		{"m/client", "172.30.0.2:30080", "web1 by 172.30.0.2:30080 as 172.30.0.2 - -; web2 by 172.30.0.2:30080 as 172.30.0.2 - -"},
		{"m/web1", "172.30.0.1:30080", "web1 by 172.30.0.1:30080 + +; web2 by 172.30.0.1:30080 as 172.30.0.1 + -"},
		{"m/client", "198.51.100.6:80", "web1 by 198.51.100.6:80 as 172.30.0.1 - -; web2 by 198.51.100.6:80 as 172.30.0.1 - -"},
		{"m/client", "10.96.0.5:80", "web1 by 10.96.0.5:80 - +; web2 by 10.96.0.5:80 - +"},
		{"203.0.113.9", "172.30.0.1:30080", "web1 by 172.30.0.1:30080 as 172.30.0.1 + -; web2 by 172.30.0.1:30080 as 172.30.0.1 + -"},
		{"172.30.0.1", "172.30.0.1:30080", "web1 by 172.30.0.1:30080 + +; web2 by 172.30.0.1:30080 + -"},
		{"172.30.0.2", "172.30.0.1:30080", "web1 by 172.30.0.1:30080 as 172.30.0.1 + -; web2 by 172.30.0.1:30080 as 172.30.0.1 + -"},
	} {
		c.check(t, x)
	}
	s.Services[0].ExternalLocal, s.EndpointSlices.Slice()[0].Endpoints[1].Node = true, "n2"
	askedIn{"203.0.113.9", "172.30.0.2:30080", "web1 by 172.30.0.2:30080 unused + +; web2 by 172.30.0.2:30080 + +"}.check(t, x)
}

// An unused backend does not decide: one that is not ready, unless none is and it serves while it terminates.
func TestExplainUnreadyBackends(t *testing.T) {
	s := market()
	x := explainer{options: Options{ExternalIPs: anyExternalIP, Services: lb.ModeEBPF, Node: "n1"}, snapshot: s, reported: s}
	s.NetworkPolicies[1].Ingress[0].Peers = nil
	s.NetworkPolicies[0].Egress[0].Peers[0] = cluster.PolicyPeer{Block: netip.MustParsePrefix("10.1.1.0/24")}
	endpoints := s.EndpointSlices.Slice()[0].Endpoints
	askedIn{"m/client", "m/web:80", "web1 + +; web2 - +"}.check(t, x)
	endpoints[1].Ready, endpoints[1].Serving, endpoints[1].Terminating = false, true, true
	askedIn{"m/client", "m/web:80", "web1 + +; web2 unused - +"}.check(t, x)
	endpoints[0].Ready = false
	askedIn{"m/client", "m/web:80", "web1 unused + +; web2 - +"}.check(t, x)
	endpoints[1].Serving = false
	askedIn{"m/client", "m/web:80", "destination: Service m/web has no backend that connections from m/client to m/web go to: none is ready"}.check(t, x)
}

// NodePorts are served at the configured addresses; an address of a device belongs to the node, but does not serve
// NodePorts by itself.
func TestExplainNodePortAddresses(t *testing.T) {
	s := market()
	local := policy.Local{Addresses: []netip.Addr{netip.MustParseAddr("169.254.20.10"), netip.MustParseAddr("172.30.0.1")}}
	x := explainer{options: Options{ExternalIPs: anyExternalIP, Services: lb.ModeEBPF, Node: "n1"}, snapshot: local.View(s, "n1"), reported: s}
	askedIn{"m/client", "169.254.20.10:30080", "169.254.20.10 + +"}.check(t, x)
	askedIn{"m/client", "169.254.20.10:53", "169.254.20.10 + +"}.check(t, x)
	x.options.NodePorts = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}
	askedIn{"m/client", "169.254.20.10:30080", "web1 + +; web2 + +"}.check(t, x)
	askedIn{"m/client", "172.30.0.1:30080", "172.30.0.1 + +"}.check(t, x)
	askedIn{"m/client", "172.30.0.2:30080", "172.30.0.2 - +"}.check(t, x)
}
