package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// sourceFacts is a node with two uplinks and a pool with gateways of both families on the second one.
func sourceFacts() (Facts, *cluster.IPPool) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	uplink := netdev.Uplink{Name: "eth0", Index: 7, MTU: 1500, Addresses: []netip.Prefix{prefix("192.0.2.1/24")}}
	office := &cluster.IPPool{
		Name: "office", Subnets: []netip.Prefix{prefix("198.51.100.0/24"), prefix("2001:db8:1::/64")},
		Gateways: []netip.Addr{addr("198.51.100.254"), addr("fe80::1")},
		Routes:   []cluster.IPPoolRoute{{To: prefix("10.0.0.0/8"), Via: addr("198.51.100.7")}},
	}
	return Facts{
		Config: Config{NodeName: "a"}, Uplink: &uplink, Local: []netip.Addr{addr("192.0.2.1"), addr("198.51.100.1")},
		Uplinks:  []netdev.Uplink{{Name: "eth1", Index: 8, MTU: 1500, Addresses: []netip.Prefix{prefix("198.51.100.1/24"), prefix("2001:db8:1::1/64")}}},
		Snapshot: &cluster.Snapshot{Nodes: []cluster.Node{{Name: "a", PodCIDRs: []netip.Prefix{prefix("10.1.0.0/24")}, Labels: cluster.NewLabels(map[string]string{"rack": "1"})}}},
		Endpoints: []agentapi.Endpoint{
			{Pool: "office", HostIfIndex: 9, Addresses: []netip.Addr{addr("198.51.100.100"), addr("2001:db8:1::100")}},
			{Pool: "office", HostIfIndex: 10, Addresses: []netip.Addr{addr("198.51.100.101")}, Macvlan: &agentapi.Macvlan{}},
			{HostIfIndex: 11, Addresses: []netip.Addr{addr("10.1.0.5")}},
		},
		IPPools: []*cluster.IPPool{{Name: "other", Subnets: []netip.Prefix{prefix("203.0.113.0/24")}}, office},
	}, office
}

// sourcesText is one line for each Source.
func sourcesText(all []PoolSource) string {
	var lines []string
	for _, s := range all {
		routes := []string{}
		for _, r := range s.Routes {
			routes = append(routes, fmt.Sprintf("%s via %s dev %d", r.Prefix, r.Via, r.Device))
		}
		lines = append(lines, fmt.Sprintf("%s %v %v: %s", s.Pool, s.Within, s.Addresses, strings.Join(routes, ", ")))
	}
	return strings.Join(lines, "\n")
}

// Pods whose router this node is send by the routers of their pool, on its uplink.
func TestSources(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	const ipv4 = "198.51.100.0/24 via invalid IP dev 8, 10.0.0.0/8 via 198.51.100.7 dev 8, 0.0.0.0/0 via 198.51.100.254 dev 8"
	const whole = "office [198.51.100.0/24 2001:db8:1::/64] [198.51.100.100 2001:db8:1::100]: " + ipv4 + ", 2001:db8:1::/64 via invalid IP dev 8, ::/0 via fe80::1 dev 8"
	for name, step := range map[string]struct {
		change  func(f *Facts, p *cluster.IPPool)
		want    string
		problem string
	}{
		"both families":     {func(*Facts, *cluster.IPPool) {}, whole, ""},
		"no IPv6":           {func(f *Facts, _ *cluster.IPPool) { f.NoIPv6 = true }, "office [198.51.100.0/24] [198.51.100.100]: " + ipv4, ""},
		"no routers":        {func(_ *Facts, p *cluster.IPPool) { p.Gateways, p.Routes = nil, nil }, "", ""},
		"invalid":           {func(_ *Facts, p *cluster.IPPool) { p.Invalid = "wrong" }, "", ""},
		"not yet any pod":   {func(f *Facts, _ *cluster.IPPool) { f.Endpoints = nil }, strings.Replace(whole, "[198.51.100.100 2001:db8:1::100]", "[]", 1), ""},
		"macvlan":           {func(f *Facts, p *cluster.IPPool) { p.Device, f.Endpoints = "macvlan", f.Endpoints[1:] }, "", ""},
		"veth with macvlan": {func(_ *Facts, p *cluster.IPPool) { p.Device = "macvlan" }, whole, ""},
		"uplink is missing": {func(_ *Facts, p *cluster.IPPool) { p.Uplink = "eth7" }, "", "no uplink of IPPool office"},
		"other nodes' pods": {func(f *Facts, p *cluster.IPPool) {
			f.Endpoints, p.Nodes = nil, &cluster.Selector{Requirements: []cluster.Requirement{{Key: "rack", Operator: "In", Values: []string{"2"}}}}
		}, "", ""},
		"node is the router": {func(f *Facts, p *cluster.IPPool) { p.Gateways, p.Routes = []netip.Addr{addr("198.51.100.1")}, nil }, "", ""},
		"router of no link": {
			func(f *Facts, p *cluster.IPPool) { p.Uplink = "eth0" }, "office [2001:db8:1::/64] [2001:db8:1::100]: 2001:db8:1::/64 via invalid IP dev 7, ::/0 via fe80::1 dev 7",
			"IPPool office: router 198.51.100.7 is not on the link of eth0",
		},
		"a route given twice": {
			func(_ *Facts, p *cluster.IPPool) {
				p.Routes = append(p.Routes, p.Routes[0], cluster.IPPoolRoute{To: prefix("0.0.0.0/0"), Via: addr("198.51.100.7")})
				p.Gateways = p.Gateways[1:]
			}, strings.Replace(whole, "0.0.0.0/0 via 198.51.100.254", "0.0.0.0/0 via 198.51.100.7", 1), "",
		},
	} {
		f, p := sourceFacts()
		step.change(&f, p)
		d := Desire(f)
		if got := sourcesText(d.Sources); got != step.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, step.want)
		}
		if has := slices.ContainsFunc(d.Problems, func(text string) bool { return strings.Contains(text, step.problem) }); step.problem != "" && !has {
			t.Errorf("%s: problems %q, want %q", name, d.Problems, step.problem)
		}
		if step.problem == "" && len(d.Problems) > 0 {
			t.Errorf("%s: problems %q", name, d.Problems)
		}
	}
}

// The number of tables is bounded; the first pools have them.
func TestSourcesMax(t *testing.T) {
	f, p := sourceFacts()
	f.IPPools = nil
	for i := range route.SourcesMax + 1 {
		of := *p
		of.Name = fmt.Sprintf("pool-%03d", i)
		f.IPPools = append(f.IPPools, &of)
	}
	d := Desire(f)
	if len(d.Sources) != route.SourcesMax || !slices.ContainsFunc(d.Problems, func(text string) bool { return strings.Contains(text, "IPPool pool-064: this node has 64") }) {
		t.Errorf("%d sources, problems %q", len(d.Sources), d.Problems)
	}
}

// Where nodes are behind tunnels, what pods of pools without routers send is looked up there, too: of pools without gateways, whose router
// is this node, of one family, and of deleted pools.
func TestSourcesOfTunnels(t *testing.T) {
	addr := netip.MustParseAddr
	const both = " [198.51.100.0/24 2001:db8:1::/64] [198.51.100.100 2001:db8:1::100]: "
	for name, step := range map[string]struct {
		change func(f *Facts, p *cluster.IPPool)
		want   string
	}{
		"routers":     {func(*Facts, *cluster.IPPool) {}, ""},
		"no routers":  {func(_ *Facts, p *cluster.IPPool) { p.Gateways, p.Routes = nil, nil }, both},
		"this router": {func(_ *Facts, p *cluster.IPPool) { p.Gateways, p.Routes = []netip.Addr{addr("198.51.100.1")}, nil }, both},
		"one family":  {func(_ *Facts, p *cluster.IPPool) { p.Gateways, p.Routes = p.Gateways[1:], nil }, " [198.51.100.0/24 2001:db8:1::/64] [198.51.100.100]: "},
		"deleted":     {func(f *Facts, _ *cluster.IPPool) { f.IPPools = nil }, " [] [198.51.100.100 2001:db8:1::100]: "},
		"no pods":     {func(f *Facts, p *cluster.IPPool) { f.Endpoints, p.Gateways, p.Routes = nil, nil, nil }, ""},
	} {
		for _, tunnels := range []bool{false, true} {
			f, p := sourceFacts()
			step.change(&f, p)
			if tunnels {
				f.Snapshot.Nodes = append(f.Snapshot.Nodes, cluster.Node{Name: "b", Addresses: []netip.Addr{addr("203.0.113.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24")}})
				f.Config.Encryption, f.Config.EncryptionStrict = EncryptionWireGuard, true
			}
			d := Desire(f)
			last := ""
			if n := len(d.Sources); n > 0 && d.Sources[n-1].Pool == "" {
				last = sourcesText(d.Sources[n-1:])
			}
			want := ""
			if tunnels {
				want = step.want
			}
			if last != want || d.TunnelRules != tunnels {
				t.Errorf("%s, tunnels %t: %q, want %q (rules %t)", name, tunnels, last, want, d.TunnelRules)
			}
		}
	}
}
