package service

import (
	"net/netip"
	"testing"

	"go4.org/netipx"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Users must not put addresses of nodes, pods, other Services or special ranges into their Services: they would
// receive the traffic of all pods and the node to these.
func TestExternalAddressesShadowNothing(t *testing.T) {
	nodes := []cluster.Node{
		{Name: "n1", Addresses: []netip.Addr{addr("192.168.60.11")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}},
		{Name: "n2", Addresses: []netip.Addr{addr("192.168.60.12")}, ExternalIPs: []netip.Addr{addr("203.0.113.2")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}},
	}
	for _, c := range []struct{ what, ip, why string }{
		{"this node", "192.168.60.11", "it is an address of node n1"},
		{"this node's, and not in its object", "fd00:60::11", "it is an address of this node"},
		{"another node", "192.168.60.12", "it is an address of node n2"},
		{"another node, external", "203.0.113.2", "it is an address of node n2"},
		{"a pod, or a future one", "10.1.2.77", "it is in 10.1.2.0/24, the pods' range of node n2"},
		{"a local pod of a former range", "10.9.0.7", "it is the address of a pod"},
		{"a Service, at a port that it has not", "10.96.0.10", "it is the cluster IP of Service shop/dns"},
		{"the API server", "192.0.2.10", "it is the address of the API server"},
		{"metadata", "169.254.169.254", "it is link-local, as the node's metadata service is"},
		{"metadata over IPv6", "fe80::a9fe:a9fe", "it is link-local, as the node's metadata service is"},
		{"loopback", "127.0.0.53", "it is a loopback address"},
		{"multicast", "224.0.0.251", "it is a multicast address"},
		{"multicast over IPv6", "ff02::fb", "it is a multicast address"},
		{"broadcast", "255.255.255.255", "it is the broadcast address"},
	} {
		for _, kind := range []Kind{KindExternalIP, KindLoadBalancer} {
			t.Run(c.what+"/"+string(kind), func(t *testing.T) {
				node := n1()
				node.Pods, node.APIServer = []netip.Addr{addr("10.9.0.7")}, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.10:6443")}
				w, tr := newObjects(), NewTranslator(node)
				w.last.Nodes = nodes
				w.put(simple("dns", func(s *cluster.Service) {
					s.ClusterIPs, s.Ports[0].Number = []netip.Addr{addr("10.96.0.10")}, 53
				}))
				w.put(simple("thief", func(s *cluster.Service) {
					ips := []netip.Addr{addr(c.ip), addr("198.51.100.1")}
					if kind == KindExternalIP {
						s.ExternalIPs = ips
					} else {
						s.LoadBalancerIPs = ips
					}
				}))
				expect(t, "both", tr.Translate(w.snapshot(), nil), `
					http ClusterIP 10.96.0.10:53/TCP | refuse | pass
					http `+string(kind)+` 198.51.100.1:80/TCP | refuse | refuse
					Service shop/thief: `+externalNames[kind]+` `+c.ip+` does not answer: `+c.why)
			})
		}
	}
}

// Without --external-ips no Service has any.
func TestExternalIPsHaveToBeAllowed(t *testing.T) {
	node := n1()
	node.ExternalIPs = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	w, tr := newObjects(), NewTranslator(node)
	w.put(simple("a", func(s *cluster.Service) {
		s.ExternalIPs = []netip.Addr{addr("198.51.100.1"), addr("203.0.113.1"), addr("203.0.113.2")}
	}))
	expect(t, "a network", tr.Translate(w.snapshot(), nil), `
		http ExternalIP 198.51.100.1:80/TCP | refuse | refuse
		Service shop/a: externalIP 203.0.113.1 does not answer: it is not in the networks of --external-ips (and 1 more of its addresses are refused)`)
	node.ExternalIPs = nil
	tr.SetNode(node)
	expect(t, "none", tr.Translate(w.snapshot(), nil), `
		removed shop/a http (80/TCP)
		Service shop/a: externalIP 198.51.100.1 does not answer: it is not in the networks of --external-ips (and 2 more of its addresses are refused)`)
}

// The owner of an address may change while a Service has it.
func TestExternalAddressesAreLookedAtAgain(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	const works = "http ExternalIP 198.51.100.1:80/TCP | refuse | refuse"
	step := func(what, want string) {
		t.Helper()
		expect(t, what, tr.Translate(w.snapshot(), nil), want)
	}
	w.put(simple("web", func(s *cluster.Service) { s.ExternalIPs = []netip.Addr{addr("198.51.100.1")} }))
	step("without an owner", works)
	w.last.Nodes = []cluster.Node{{Name: "n2", Addresses: []netip.Addr{addr("198.51.100.1")}}}
	step("a node's", "removed shop/web http (80/TCP)\nService shop/web: externalIP 198.51.100.1 does not answer: it is an address of node n2")
	w.last.Nodes = []cluster.Node{{Name: "n2", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}}
	step("a pod's", "Service shop/web: externalIP 198.51.100.1 does not answer: it is in 198.51.100.0/24, the pods' range of node n2")
	w.last.Nodes = nil
	step("without an owner again", works)
	w.last.IPPools = []*cluster.IPPool{{Name: "office", Ranges: []netipx.IPRange{netipx.MustParseIPRange("198.51.100.0-198.51.100.9")}}}
	step("of pods of a pool", "removed shop/web http (80/TCP)\nService shop/web: externalIP 198.51.100.1 does not answer: "+
		"it is in the ranges of IPPool office (spec.exclude of the pool can leave it out)")
	w.last.IPPools = []*cluster.IPPool{{Name: "office", Ranges: []netipx.IPRange{netipx.MustParseIPRange("198.51.100.2-198.51.100.9")}}}
	step("excluded", works)
	other := simple("other", func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr("198.51.100.1")} })
	other.Ports[0].Number = 81
	w.put(other)
	step("a Service's", "http ClusterIP 198.51.100.1:81/TCP | refuse | pass\nremoved shop/web http (80/TCP)\nService shop/web: externalIP 198.51.100.1 does not answer: it is the cluster IP of Service shop/other")
	w.remove(other)
	step("and not any more", works+"\nremoved shop/other http (81/TCP)")
}

// A pod's host ports are served at addresses of its node only, whatever hostIP it requests.
func TestHostPortsOfForeignAddresses(t *testing.T) {
	backends := []netip.AddrPort{netip.MustParseAddrPort("10.1.1.2:8080")}
	host := func(ip string) []HostPort {
		return []HostPort{{Pod: cluster.Key{Namespace: "shop", Name: "thief"}, Protocol: cluster.TCP, Number: 80, Address: addr(ip), Backends: backends}}
	}
	for _, ip := range []string{"169.254.169.254", "10.96.0.1", "192.168.60.12", "10.1.2.2", "127.0.0.53"} {
		tr := NewTranslator(n1())
		expect(t, ip, tr.Translate(newObjects().snapshot(), host(ip)),
			"Pod shop/thief: hostPort 80/TCP does not answer: its hostIP "+ip+" is not an address of this node")
	}
	// An address may be added later.
	node, w := n1(), newObjects()
	tr := NewTranslator(node)
	tr.Translate(w.snapshot(), host("192.168.60.99"))
	node.HostPortAddresses = append(node.HostPortAddresses, addr("192.168.60.99"))
	tr.SetNode(node)
	expect(t, "it has come", tr.Translate(w.snapshot(), host("192.168.60.99")), "hostPort HostPort 192.168.60.99:80/TCP | 10.1.1.2:8080 | 10.1.1.2:8080")
}

// The agent's own connection to the API server passes the programs of sockets like all others: only that server's own
// Service may be at its address.
func TestOnlyItsServiceHasTheAPIServer(t *testing.T) {
	node := n1()
	node.APIServer = []netip.AddrPort{netip.MustParseAddrPort("10.96.0.1:443"), netip.MustParseAddrPort("192.168.60.11:6443"), netip.MustParseAddrPort("192.0.2.10:30080")}
	real := &cluster.Service{Namespace: "default", Name: "kubernetes", ClusterIPs: []netip.Addr{addr("10.96.0.1")},
		Ports: []cluster.ServicePort{{Name: "https", Protocol: cluster.TCP, Number: 443}}}
	thief := &cluster.Service{Namespace: "a", Name: "a", ClusterIPs: []netip.Addr{addr("10.96.0.1")}, LoadBalancerIPs: []netip.Addr{addr("192.0.2.10")},
		Ports: []cluster.ServicePort{{Name: "https", Protocol: cluster.TCP, Number: 443, NodePort: 6443}}}
	host := HostPort{Pod: cluster.Key{Namespace: "a", Name: "pod"}, Protocol: cluster.TCP, Number: 6443, Backends: []netip.AddrPort{netip.MustParseAddrPort("10.1.1.2:8080")}}
	w, tr := newObjects(), NewTranslator(node)
	w.put(thief, real)
	w.put(&cluster.EndpointSlice{Namespace: "default", Name: "a", Service: "kubernetes", Ports: []cluster.EndpointPort{{Name: "https", Protocol: cluster.TCP, Number: 8443}},
		Endpoints: []cluster.Endpoint{{Address: addr("10.1.1.66"), Ready: true, Serving: true}}})
	w.put(&cluster.EndpointSlice{Namespace: "default", Name: "kubernetes", Service: "kubernetes", Ports: []cluster.EndpointPort{{Name: "https", Protocol: cluster.TCP, Number: 6443}},
		Endpoints: []cluster.Endpoint{{Address: addr("192.168.60.11"), Ready: true, Serving: true}}})
	expect(t, "thieves", tr.Translate(w.snapshot(), []HostPort{host}), `
		https NodePort [fd00:60::11]:6443/TCP | refuse | refuse
		https ClusterIP 10.96.0.1:443/TCP | 192.168.60.11:6443 | pass
		hostPort HostPort 127.0.0.1:6443/TCP | 10.1.1.2:8080 | pass
		Pod a/pod: hostPort 6443/TCP does not answer at 192.168.60.11: the agent reaches the API server at 192.168.60.11:6443
		Service a/a: load balancer's address 192.0.2.10 does not answer: it is the address of the API server
		Service a/a: port https (443/TCP): NodePort 6443/TCP does not answer: the agent reaches the API server at 192.168.60.11:6443
		Service a/a: port https (443/TCP): cluster IP 10.96.0.1, port 443/TCP, does not answer: the agent reaches the API server at 10.96.0.1:443`)
}
