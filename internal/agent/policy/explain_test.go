package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// shop has a client, a server with a named port that allows clients, a Service of it, and a pod that an invalid
// policy isolates.
func shop() *cluster.Snapshot {
	app := func(name string) cluster.Selector {
		return cluster.Selector{Requirements: []cluster.Requirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{name}}}}
	}
	client := app("client")
	pod := func(name, address string) *cluster.Pod {
		return &cluster.Pod{Namespace: "shop", Name: name, Node: "n1", Labels: cluster.NewLabels(map[string]string{"app": name}),
			Addresses: []netip.Addr{netip.MustParseAddr(address)}, Ports: []cluster.ContainerPort{{Name: "http", Protocol: cluster.TCP, Number: 8080}}}
	}
	ports := []cluster.EndpointPort{
		{Name: "admin", Protocol: cluster.TCP, Number: 9090}, {Name: "quic", Protocol: cluster.UDP, Number: 8443}, {Name: "www", Protocol: cluster.TCP, Number: 8080},
	}
	return &cluster.Snapshot{
		Pods: cluster.ListOf(pod("client", "10.1.1.2"), pod("db", "10.1.1.4"), pod("web", "10.1.1.3")),
		NetworkPolicies: []*cluster.NetworkPolicy{
			{Namespace: "shop", Name: "broken", Pods: app("db"), IsolatesEgress: true, Invalid: "nonsense"},
			{Namespace: "shop", Name: "web", Pods: app("web"), IsolatesIngress: true, Ingress: []cluster.PolicyRule{{
				Peers: []cluster.PolicyPeer{{Pods: &client}}, Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, First: 8080, Last: 8080}},
			}}},
		},
		Nodes: []cluster.Node{{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("172.30.0.1")}}},
		Services: []*cluster.Service{{
			Namespace: "shop", Name: "front", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.5"), netip.MustParseAddr("fd96::5")},
			ExternalIPs: []netip.Addr{netip.MustParseAddr("198.51.100.5")}, LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("198.51.100.6")},
			Ports: []cluster.ServicePort{
				{Name: "quic", Protocol: cluster.UDP, Number: 80, NodePort: 30080}, {Name: "www", Protocol: cluster.TCP, Number: 80, NodePort: 30080},
				{Name: "admin", Protocol: cluster.TCP, Number: 8081},
			},
		}},
		EndpointSlices: cluster.ListOf(
			&cluster.EndpointSlice{Namespace: "shop", Name: "front-x", Service: "front", Ports: ports,
				Endpoints: []cluster.Endpoint{{Address: netip.MustParseAddr("10.1.1.3"), Ready: true}, {Address: netip.MustParseAddr("10.9.9.9"), Ready: true}}},
			// While endpoints move from one slice to another, both have them.
			&cluster.EndpointSlice{Namespace: "shop", Name: "front-y", Service: "front", Ports: ports, Endpoints: []cluster.Endpoint{{Address: netip.MustParseAddr("10.1.1.3"), Ready: true}}},
		),
	}
}

func TestExplainPolicy(t *testing.T) {
	s := shop()
	x := explainer{options: Options{ExternalIPs: anyExternalIP, Services: lb.ModeEBPF}, snapshot: s, reported: s}
	for _, c := range []struct {
		from, to, port, protocol string
		allowed                  bool
		paths                    int
		says                     string // somewhere in the answer, or in the error
	}{
		{"shop/client", "shop/web", "8080", "TCP", true, 1, "shop/web spec.ingress[0]"},
		{"shop/client", "shop/web", "http", "TCP", true, 1, "shop/web port 8080/TCP"},
		{"shop/client", "shop/web", "9090", "TCP", false, 1, "shop/web spec.ingress[0] allows the peer, but not the port"},
		{"shop/client", "shop/web", "8080", "UDP", false, 1, "allows the peer"},
		{"shop/db", "10.1.1.3", "8080", "TCP", false, 1, "shop/web (10.1.1.3)"},
		{"203.0.113.9", "shop/web", "8080", "TCP", false, 1, "allows the port, but not the peer"},
		{"node", "shop/web", "9090", "TCP", true, 1, "own node"},
		{"shop/web", "node", "9090", "TCP", true, 1, "own node"},
		{"shop/client", "shop/web", "", "ICMP", false, 1, "allows the peer"},
		{"shop/client", "shop/front", "80", "TCP", true, 2, "shop/web (10.1.1.3) port 8080/TCP"},
		{"203.0.113.9", "shop/front", "www", "TCP", false, 2, "10.9.9.9 port 8080/TCP"},
		{"shop/client", "10.96.0.5", "80", "TCP", true, 2, "backend of shop/front"},
		{"shop/client", "::ffff:10.96.0.5", "www", "TCP", true, 2, "shop/web (10.1.1.3) port 8080/TCP"},
		{"203.0.113.9", "198.51.100.5", "80", "TCP", false, 2, "allows the port, but not the peer"},
		{"203.0.113.9", "198.51.100.6", "80", "TCP", false, 2, "allows the port, but not the peer"},
		{"203.0.113.9", "172.30.0.1", "30080", "TCP", false, 2, "shop/web (10.1.1.3) port 8080/TCP"},
		{"203.0.113.9", "172.30.0.1", "30080", "UDP", false, 2, "shop/web (10.1.1.3) port 8443/UDP"},
		{"shop/client", "172.30.0.1", "30081", "TCP", true, 1, "own node"},
		{"shop/client", "10.96.0.5", "81", "TCP", false, 0, "Service shop/front has no port 81 of protocol TCP"},
		{"shop/client", "198.51.100.5", "22", "TCP", true, 1, ""},
		{"shop/client", "fd96::5", "80", "TCP", false, 0, "Service shop/front has no backends"},
		{"shop/db", "shop/client", "1", "TCP", false, 1, "closed: NetworkPolicy shop/broken is not understood: nonsense"},
		{"shop/client", "shop/db", "1", "TCP", true, 1, ""},
		{"shop/missing", "shop/web", "80", "TCP", false, 0, "source: there is no pod shop/missing"},
		{"shop/client", "shop/missing", "80", "TCP", false, 0, "destination: there is no pod shop/missing"},
		{"shop/client", "shop/front", "81", "TCP", false, 0, "Service shop/front has no port 81 of protocol TCP"},
		{"shop/client", "shop/web", "ftp", "TCP", false, 0, `no port "ftp"`},
		{"shop/client", "shop/web", "0", "TCP", false, 0, "port 0 is not from 1 to 65535"},
		{"shop/client", "shop/web", "65536", "TCP", false, 0, "port 65536 is not from 1 to 65535"},
		{"10.1.0.0/16", "shop/web", "80", "TCP", false, 0, `source: "10.1.0.0/16" is a prefix, and one address is needed`},
		{"shop/client", "shop/web", "", "TCP", false, 0, "a port is needed, as in shop/web:80"},
		{"shop/client", "fd00::7:443", "", "TCP", false, 0, "a port is needed, as in [fd00::7:443]:80"},
		{"shop/client", "shop/web", "80", "ICMP", false, 0, "ICMP has no ports"},
		{"shop/client", "shop/web", "80", "GRE", false, 0, `protocol "GRE" is none of`},
		{"client", "shop/web", "80", "TCP", false, 0, `"client" is neither NAMESPACE/POD nor an address`},
		{"node", "node", "80", "TCP", false, 0, "both ends are the node"},
	} {
		query := c.from + " " + c.to + ":" + c.port + "/" + c.protocol
		a, err := x.answer(agentapi.PolicyQuestion{From: c.from, To: c.to, Port: c.port, Protocol: c.protocol})
		if c.paths == 0 {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: error %v, want %q", query, err, c.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		said := ""
		for _, w := range a.Paths {
			said += "backend of " + w.Service + "\n"
			for _, j := range []agentapi.PolicyDecision{w.Egress, w.Ingress} {
				said += strings.Join(slices.Concat([]string{w.From, w.To, j.Reason}, j.Rules, j.Near), "\n") + "\n"
			}
		}
		if a.Allowed != c.allowed || len(a.Paths) != c.paths || !strings.Contains(said, c.says) {
			t.Errorf("%s: allowed %t on %d paths, want %t in %d, and %q in\n%s", query, a.Allowed, len(a.Paths), c.allowed, c.paths, c.says, said)
		}
	}
}

// Beside kube-proxy the sender's policies see the Service's address, and the receiver's the address after
// masquerading.
func TestExplainPolicyBesideKubeProxy(t *testing.T) {
	s := shop()
	s.Pods = cluster.ListOf(slices.Delete(s.Pods.Slice(), 1, 2)...)
	s.NetworkPolicies[0] = &cluster.NetworkPolicy{Namespace: "shop", Name: "client", Pods: *s.NetworkPolicies[1].Ingress[0].Peers[0].Pods, IsolatesEgress: true,
		Egress: []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Block: netip.MustParsePrefix("10.1.0.0/16")}}}}}
	for _, c := range []struct {
		services lb.Mode
		egress   bool
		to, how  string
	}{
		{lb.ModeEBPF, true, "10.96.0.5", "by address"}, {lb.ModeEBPF, true, "shop/front", "by name"},
		{lb.ModeKubeProxy, false, "10.96.0.5", "by address"}, {lb.ModeKubeProxy, false, "shop/front", "by name"},
		{lb.ModeNone, false, "shop/front", "by name"}, {lb.ModeKubeProxy, true, "shop/web", "the pod itself"},
	} {
		port := "80"
		if c.to == "shop/web" {
			port = "8080"
		}
		a, err := explainer{options: Options{ExternalIPs: anyExternalIP, Services: c.services}, snapshot: s, reported: s}.answer(agentapi.PolicyQuestion{From: "shop/client", To: c.to, Port: port, Protocol: "TCP"})
		if err != nil {
			t.Fatal(err)
		}
		if w := a.Paths[0]; w.Egress.Allowed != c.egress || !w.Ingress.Allowed {
			t.Errorf("%s, %s: egress %+v, ingress %+v", c.services, c.how, w.Egress, w.Ingress)
		}
	}
}

// A pod that is isolated here because a table is full is not allowed, whatever rules say.
func TestExplainPolicyOfClosedPod(t *testing.T) {
	x := explainer{options: Options{ExternalIPs: anyExternalIP, Node: "n1"}, snapshot: shop(), closed: map[closedPod]string{{cluster.Key{Namespace: "shop", Name: "web"}, true}: "map policies is full"}}
	a, err := x.answer(agentapi.PolicyQuestion{From: "shop/client", To: "shop/web", Port: "8080", Protocol: "TCP"})
	if err != nil || a.Allowed || a.Paths[0].Ingress.Reason != "closed: map policies is full" {
		t.Errorf("answer %+v, error %v", a, err)
	}
	x.options.Node = "n2" // where an earlier pod of that name is isolated
	if a, err := x.answer(agentapi.PolicyQuestion{From: "shop/client", To: "shop/web", Port: "8080", Protocol: "TCP"}); err != nil || !a.Allowed {
		t.Errorf("a remote pod with the name of an isolated local one: answer %+v, error %v", a, err)
	}
}

// anyExternalIP lets Services have all externalIPs (--external-ips=0.0.0.0/0).
var anyExternalIP = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
