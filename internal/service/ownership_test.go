package service

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// The owner of a frontend that two request, whatever the order of arrival, and the effect of removing one of them.
func TestConflicts(t *testing.T) {
	clusterIP := func(ip string) func(*cluster.Service) {
		return func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr(ip)} }
	}
	externalIP := func(ip string) func(*cluster.Service) {
		return func(s *cluster.Service) { s.ExternalIPs = []netip.Addr{addr(ip)} }
	}
	nodePort := func(s *cluster.Service) { s.Ports[0].NodePort = 30080 }
	host := func(pod, ip string, number uint16) HostPort {
		return HostPort{Pod: cluster.Key{Namespace: "shop", Name: pod}, Protocol: cluster.TCP, Number: number, Address: addr(ip),
			Backends: []netip.AddrPort{netip.MustParseAddrPort("10.1.1.2:8080")}}
	}
	for _, c := range []struct {
		name          string
		winner, loser any
		want, problem string // while both exist
		after         string // the loser's, when the winner is gone
	}{
		{
			name: "NodePorts", winner: simple("a", nodePort), loser: simple("b", nodePort),
			want:    "http NodePort 192.168.60.11:30080/TCP | refuse | refuse",
			problem: "Service shop/b: NodePort 30080/TCP does not answer: Service shop/a has the same",
			after:   "http NodePort 192.168.60.11:30080/TCP | refuse | refuse",
		},
		{
			name: "an external IP and a cluster IP", winner: simple("z", clusterIP("10.96.0.1")), loser: simple("a", externalIP("10.96.0.1")),
			want:    "http ClusterIP 10.96.0.1:80/TCP | refuse | pass",
			problem: "Service shop/a: externalIP 10.96.0.1 does not answer: it is the cluster IP of Service shop/z",
			after:   "http ExternalIP 10.96.0.1:80/TCP | refuse | refuse",
		},
		{
			name: "external IPs", winner: simple("a", externalIP("198.51.100.1")), loser: simple("b", externalIP("198.51.100.1")),
			want:    "http ExternalIP 198.51.100.1:80/TCP | refuse | refuse",
			problem: "Service shop/b: externalIP 198.51.100.1, port 80/TCP, does not answer: Service shop/a has the same",
			after:   "http ExternalIP 198.51.100.1:80/TCP | refuse | refuse",
		},
		{
			name: "a load balancer's address and an external IP", loser: simple("a", externalIP("198.51.100.1")),
			winner:  simple("b", func(s *cluster.Service) { s.LoadBalancerIPs = []netip.Addr{addr("198.51.100.1")} }),
			want:    "http LoadBalancer 198.51.100.1:80/TCP | refuse | refuse",
			problem: "Service shop/a: externalIP 198.51.100.1, port 80/TCP, does not answer: it is the load balancer's address of Service shop/b",
			after:   "http ExternalIP 198.51.100.1:80/TCP | refuse | refuse",
		},
		{
			name: "a NodePort and a host port", winner: simple("z", nodePort), loser: host("a", "192.168.60.11", 30080),
			want:    "http NodePort 192.168.60.11:30080/TCP | refuse | refuse",
			problem: "Pod shop/a: hostPort 30080/TCP does not answer: it is NodePort 30080 of Service shop/z",
			after:   "hostPort HostPort 192.168.60.11:30080/TCP | 10.1.1.2:8080 | 10.1.1.2:8080",
		},
		{
			name: "a host port and an external IP of this node", winner: host("z", "192.168.60.11", 80), loser: simple("a", externalIP("192.168.60.11")),
			want:    "hostPort HostPort 192.168.60.11:80/TCP | 10.1.1.2:8080 | 10.1.1.2:8080",
			problem: "Service shop/a: externalIP 192.168.60.11 does not answer: it is an address of this node",
			after:   "Service shop/a: externalIP 192.168.60.11 does not answer: it is an address of this node",
		},
		{
			name: "host ports of two pods", winner: host("a", "192.168.60.11", 80), loser: host("b", "192.168.60.11", 80),
			want:    "hostPort HostPort 192.168.60.11:80/TCP | 10.1.1.2:8080 | 10.1.1.2:8080",
			problem: "Pod shop/b: hostPort 80/TCP does not answer: Pod shop/a has the same",
			after:   "hostPort HostPort 192.168.60.11:80/TCP | 10.1.1.2:8080 | 10.1.1.2:8080",
		},
	} {
		for order, objects := range map[string][]any{"winner first": {c.winner, c.loser}, "loser first": {c.loser, c.winner}, "together": nil} {
			t.Run(c.name+"/"+order, func(t *testing.T) {
				node := n1()
				node.NodePortAddresses = node.NodePortAddresses[:1]
				w, tr := newObjects(), NewTranslator(node)
				var hostPorts []HostPort
				put := func(o any) {
					if h, ok := o.(HostPort); ok {
						hostPorts = append(hostPorts, h)
					}
					w.put(o)
				}
				var last Changes
				for _, o := range objects {
					put(o)
					last = tr.Translate(w.snapshot(), hostPorts)
				}
				if objects == nil {
					put(c.loser)
					put(c.winner)
					last = tr.Translate(w.snapshot(), hostPorts)
				}
				expect(t, "both", Changes{Set: tr.Ports(), Problems: last.Problems}, c.want+"\n"+c.problem)

				w.remove(c.winner)
				if _, ok := c.winner.(HostPort); ok {
					hostPorts = deleteHostPort(hostPorts, c.winner.(HostPort))
				}
				last = tr.Translate(w.snapshot(), hostPorts)
				expect(t, "the winner is gone", Changes{Set: tr.Ports(), Problems: last.Problems}, c.after)
			})
		}
	}
}

func deleteHostPort(all []HostPort, stopped HostPort) (rest []HostPort) {
	for _, h := range all {
		if !h.equal(&stopped) {
			rest = append(rest, h)
		}
	}
	return rest
}

// Of three owners, the next one takes over.
func TestConflictOfThree(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	for _, name := range []string{"c", "a", "b"} {
		w.put(simple(name, func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr("10.96.0.1")} }))
		tr.Translate(w.snapshot(), nil)
	}
	w.remove(simple("a", nil))
	expect(t, "a is gone", tr.Translate(w.snapshot(), nil), `
		http ClusterIP 10.96.0.1:80/TCP | refuse | pass
		removed shop/a http (80/TCP)
		Service shop/c: cluster IP 10.96.0.1, port 80/TCP, does not answer: Service shop/b has the same`)
	if got := tr.Ports()[0].Name.Service.Name; got != "b" {
		t.Errorf("%s has it, want b", got)
	}
}

func TestHostPorts(t *testing.T) {
	backends := []netip.AddrPort{netip.MustParseAddrPort("10.1.1.2:8080"), netip.MustParseAddrPort("[fd00:1::2]:8080")}
	newer := []netip.AddrPort{netip.MustParseAddrPort("10.1.1.3:8080")}
	node := n1()
	for _, c := range []struct {
		name  string
		ports []HostPort
		want  string
	}{
		{"on all addresses of the node, with the pod's address of the family", []HostPort{{Protocol: cluster.TCP, Number: 80, Backends: backends}}, `
			hostPort HostPort 192.168.60.11:80/TCP | 10.1.1.2:8080 | 10.1.1.2:8080
			hostPort HostPort [fd00:60::11]:80/TCP | [fd00:1::2]:8080 | [fd00:1::2]:8080
			hostPort HostPort 127.0.0.1:80/TCP | 10.1.1.2:8080 | pass`},
		{"0.0.0.0", []HostPort{{Protocol: cluster.UDP, Number: 80, Address: addr("0.0.0.0"), Backends: backends}}, `
			hostPort HostPort 192.168.60.11:80/UDP | 10.1.1.2:8080 | 10.1.1.2:8080
			hostPort HostPort 127.0.0.1:80/UDP | 10.1.1.2:8080 | pass`},
		{"::", []HostPort{{Protocol: cluster.TCP, Number: 80, Address: addr("::"), Backends: backends}},
			`hostPort HostPort [fd00:60::11]:80/TCP | [fd00:1::2]:8080 | [fd00:1::2]:8080`},
		{"one address", []HostPort{{Protocol: cluster.TCP, Number: 80, Address: addr("127.0.0.1"), Backends: backends}},
			`hostPort HostPort 127.0.0.1:80/TCP | 10.1.1.2:8080 | pass`},
		{"one number on two addresses, for two ports of the pod", []HostPort{
			{Protocol: cluster.TCP, Number: 80, Address: addr("127.0.0.1"), Backends: backends},
			{Protocol: cluster.TCP, Number: 80, Address: addr("192.168.60.11"), Backends: newer},
		}, `
			hostPort HostPort 127.0.0.1:80/TCP | 10.1.1.2:8080 | pass
			hostPort HostPort 192.168.60.11:80/TCP | 10.1.1.3:8080 | 10.1.1.3:8080`},
		{"the pod was made anew", []HostPort{
			{Protocol: cluster.TCP, Number: 80, Address: addr("0.0.0.0"), Backends: backends},
			{Protocol: cluster.TCP, Number: 80, Address: addr("0.0.0.0"), Backends: newer},
		}, `
			hostPort HostPort 192.168.60.11:80/TCP | 10.1.1.3:8080 | 10.1.1.3:8080
			hostPort HostPort 127.0.0.1:80/TCP | 10.1.1.3:8080 | pass`},
		{"the pod has no address of that family", []HostPort{{Protocol: cluster.TCP, Number: 80, Address: addr("::"), Backends: newer}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := show(TranslateHostPorts(c.ports, &node)); got != lines(c.want) {
				t.Errorf("entries are\n%s\nwant\n%s", got, lines(c.want))
			}
		})
	}
}
