package node

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
)

const tunnelIndex = 9

// threeNodes is twoNodes with a node c in another subnet.
func threeNodes() Facts {
	f := twoNodes()
	f.Snapshot.Nodes = append(f.Snapshot.Nodes, cluster.Node{
		Name: "c", Addresses: addrs("198.51.100.3", "2001:db8:1::3"), PodCIDRs: prefixes("10.1.3.0/24", "fd00:3::/64"),
	})
	f.Tunnel.Index = tunnelIndex
	return f
}

// throughTunnel is the route to a node's addresses at the other end.
func throughTunnel(end string, mtu int) fwd.Route {
	return fwd.Route{
		Kind: fwd.RouteTunnel, Interface: tunnelIndex, MTU: mtu, NextHop: addr(end),
		NextHopMAC: fwd.MAC{2, 0xbe, 0xe1, 0, 0, 1}, UplinkMAC: fwd.MAC{2, 0xbe, 0xe1, 0, 0, 2},
	}
}

// Nodes of other subnets are behind tunnels, and nothing changes for the others.
func TestDesireTunnelBesideDirect(t *testing.T) {
	d := Desire(threeNodes())
	without := Desire(twoNodes())
	for p, want := range without.Routes {
		if d.Routes[p] != want {
			t.Errorf("the route to %s is %+v, without the third node %+v", p, d.Routes[p], want)
		}
	}
	for _, p := range prefixes("10.1.3.0/24", "fd00:3::/64", "198.51.100.3/32", "2001:db8:1::3/128") {
		if want := throughTunnel("198.51.100.3", 1450); d.Routes[p] != want {
			t.Errorf("the route to %s is %+v, want %+v", p, d.Routes[p], want)
		}
	}
	for _, want := range []route.Route{
		{Prefix: netip.MustParsePrefix("10.1.3.0/24"), Via: addr("169.254.1.1"), OnLink: true, Device: tunnelIndex, MTU: 1450, Source: addr("192.0.2.1")},
		{Prefix: netip.MustParsePrefix("fd00:3::/64"), Via: addr("fe80::1"), Device: tunnelIndex, MTU: 1450, Source: addr("2001:db8::1")},
		{Prefix: netip.MustParsePrefix("198.51.100.3/32"), Via: addr("169.254.1.1"), OnLink: true, Device: tunnelIndex, MTU: 1450, Table: route.TunnelTable},
		{Prefix: netip.MustParsePrefix("2001:db8:1::3/128"), Via: addr("fe80::1"), Device: tunnelIndex, MTU: 1450, Table: route.TunnelTable},
	} {
		if !slices.Contains(d.KernelRoutes, want) {
			t.Errorf("the stack lacks the route %+v", want)
		}
	}
	if len(d.KernelRoutes) != len(without.KernelRoutes)+4 {
		t.Errorf("%d kernel routes, want 4 more than %d", len(d.KernelRoutes), len(without.KernelRoutes))
	}
	if !d.TunnelRules || d.MTU != 1500 || len(d.Problems) != 0 {
		t.Errorf("rules %t, MTU of pods %d, problems %q", d.TunnelRules, d.MTU, d.Problems)
	}
	if diff := cmp.Diff(without.Neighbours, d.Neighbours, byValue); diff != "" {
		t.Errorf("neighbours (-without the third node +with it):\n%s", diff)
	}
	if _, known := d.Routes[netip.MustParsePrefix("198.51.100.3/32")]; !known {
		t.Error("what pods send to a node behind a tunnel is masqueraded")
	}
	if n := d.Nodes[1]; n.Path != agentapi.NodePathVXLAN || n.MTU != 1450 || n.MAC != "" {
		t.Errorf("node c is reported as %+v", n)
	}
}

func TestDesireTunnelChanges(t *testing.T) {
	pods4, pods6 := netip.MustParsePrefix("10.1.3.0/24"), netip.MustParsePrefix("fd00:3::/64")
	for name, c := range map[string]struct {
		change func(*Facts)
		check  func(t *testing.T, d Desired)
	}{
		"none: the routers know": {
			func(f *Facts) { f.Config.Tunnel = TunnelNone; f.Tunnel = Tunnel{} },
			func(t *testing.T, d Desired) {
				if d.Routes[pods4].Kind != fwd.RouteCluster || d.TunnelRules || len(d.Problems) != 0 || d.Nodes[1].Path != agentapi.NodePathRouted {
					t.Errorf("%+v, rules %t, problems %q, node %+v", d.Routes[pods4], d.TunnelRules, d.Problems, d.Nodes[1])
				}
			},
		},
		"vxlan: all nodes, and the MTU of pods fits": {
			func(f *Facts) { f.Config.Tunnel = TunnelVXLAN },
			func(t *testing.T, d Desired) {
				if got := d.Routes[netip.MustParsePrefix("10.1.2.0/24")]; got != throughTunnel("192.0.2.2", 1450) || d.MTU != 1450 || len(d.Neighbours) != 0 {
					t.Errorf("%+v, MTU of pods %d, neighbours %v", got, d.MTU, d.Neighbours)
				}
				if d.Nodes[0].Path != agentapi.NodePathVXLAN || d.Nodes[1].Path != agentapi.NodePathVXLAN {
					t.Errorf("%+v", d.Nodes)
				}
			},
		},
		"vxlan over IPv6 takes more": {
			func(f *Facts) {
				f.Config.Tunnel, f.Held = TunnelVXLAN, addrs("2001:db8::1")
			},
			func(t *testing.T, d Desired) {
				if got := d.Routes[pods4]; got != throughTunnel("2001:db8:1::3", 1430) || d.MTU != 1430 {
					t.Errorf("%+v, MTU of pods %d", got, d.MTU)
				}
			},
		},
		"vxlan without another node: the MTU of pods still fits": {
			func(f *Facts) { f.Config.Tunnel, f.Snapshot.Nodes = TunnelVXLAN, f.Snapshot.Nodes[:1] },
			func(t *testing.T, d Desired) {
				if d.MTU != 1450 {
					t.Errorf("MTU of pods %d", d.MTU)
				}
			},
		},
		"one family over the link, the other through a tunnel": {
			func(f *Facts) { f.Snapshot.Nodes[2].Addresses = addrs("192.0.2.3") },
			func(t *testing.T, d Desired) {
				if d.Routes[pods4].Kind != fwd.RouteRemote || d.Routes[pods6] != throughTunnel("192.0.2.3", 1450) {
					t.Errorf("IPv4 %+v, IPv6 %+v", d.Routes[pods4], d.Routes[pods6])
				}
				if d.Routes[netip.MustParsePrefix("192.0.2.3/32")].Kind != fwd.RouteRemote {
					t.Error("the node's address on the link is not reached over it")
				}
				if n := d.Nodes[1]; n.Path != agentapi.NodePathDirect+", "+agentapi.NodePathVXLAN || n.MTU != 1450 {
					t.Errorf("node c is reported as %+v", n)
				}
			},
		},
		"a configured MTU applies in the tunnel": {
			func(f *Facts) { f.Config.MTU = 1400 },
			func(t *testing.T, d Desired) {
				if got := d.Routes[pods4]; got.MTU != 1400 {
					t.Errorf("%+v", got)
				}
			},
		},
		"no family in common": {
			func(f *Facts) {
				f.Held = addrs("192.0.2.1")
				f.Snapshot.Nodes[2].Addresses = addrs("2001:db8:1::3")
			},
			func(t *testing.T, d Desired) {
				wantProblem(t, d, `pods of node "c" in 10.1.3.0/24 cannot be reached: none of its addresses [2001:db8:1::3] is of a family`)
				if d.Routes[pods4].Kind != fwd.RouteCluster {
					t.Errorf("%+v", d.Routes[pods4])
				}
			},
		},
		"a link too small for IPv6 in a tunnel": {
			func(f *Facts) { f.Uplink.MTU = 1320 },
			func(t *testing.T, d Desired) {
				wantProblem(t, d, `pods of node "c" in fd00:3::/64 cannot be reached: a tunnel over eth0 carries packets of 1270 bytes, and IPv6 needs 1280`)
				pods6 := netip.MustParsePrefix("fd00:3::/64")
				if d.Routes[pods6].Kind != fwd.RouteCluster || d.Routes[pods4].Kind != fwd.RouteTunnel {
					t.Errorf("IPv6 %+v, IPv4 %+v", d.Routes[pods6], d.Routes[pods4])
				}
				for _, r := range d.KernelRoutes {
					if r.Prefix == pods6 {
						t.Errorf("the stack has a route through a device without IPv6: %+v", r)
					}
				}
			},
		},
		"the port is in use": {
			func(f *Facts) { f.Tunnel = Tunnel{Missing: vxlan.ErrConflict} },
			func(t *testing.T, d Desired) {
				wantProblem(t, d, "another program uses the name or the port of the VXLAN device")
				if d.Routes[netip.MustParsePrefix("10.1.2.0/24")].Kind != fwd.RouteRemote {
					t.Error("nodes on the link are affected")
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := threeNodes()
			c.change(&f)
			c.check(t, Desire(f))
		})
	}
}

// The device exists for the nodes that need it, and its MTU fits the largest packet of any of them.
func TestTunnelSpec(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		want   *vxlan.Spec
	}{
		"a node in another subnet": {func(*Facts) {}, &vxlan.Spec{Port: 4789, MTU: 1450, Addresses: addrs("192.0.2.1", "2001:db8::1")}},
		"over IPv6":                {func(f *Facts) { f.Held = addrs("2001:db8::1") }, &vxlan.Spec{Port: 4789, MTU: 1430, Addresses: addrs("2001:db8::1")}},
		"all on the link":          {func(f *Facts) { f.Snapshot.Nodes = f.Snapshot.Nodes[:2] }, nil},
		"all on the link, as requested": {
			func(f *Facts) { f.Snapshot.Nodes, f.Config.Tunnel = f.Snapshot.Nodes[:2], TunnelVXLAN },
			&vxlan.Spec{Port: 4789, MTU: 1450, Addresses: addrs("192.0.2.1", "2001:db8::1")},
		},
		"none":                {func(f *Facts) { f.Config.Tunnel = TunnelNone }, nil},
		"no uplink":           {func(f *Facts) { f.Uplink = nil }, nil},
		"none, but requested": {func(f *Facts) { f.Uplink, f.Config.Tunnel = nil, TunnelVXLAN }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := threeNodes()
			c.change(&f)
			spec, needed := f.TunnelSpec()
			if needed != (c.want != nil) {
				t.Fatalf("needed %t: %+v", needed, spec)
			}
			if c.want != nil {
				if diff := cmp.Diff(*c.want, spec, byValue); diff != "" {
					t.Errorf("spec (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// An agent that starts while manifests are invalid keeps tunnels as well.
func TestMissingObjectsKeepTunnels(t *testing.T) {
	for _, config := range []TunnelMode{TunnelAuto, TunnelVXLAN} {
		whole := threeNodes()
		whole.Config.Tunnel = config
		want := Desire(whole)
		for _, missing := range []string{"c", "bc", "abc"} {
			t.Run(string(config)+" without "+missing, func(t *testing.T) {
				f := threeNodes()
				f.Config.Tunnel = config
				snapshot := &cluster.Snapshot{Incomplete: true}
				for _, n := range f.Snapshot.Nodes {
					if !strings.Contains(missing, n.Name) {
						snapshot.Nodes = append(snapshot.Nodes, n)
					}
				}
				f.Snapshot, f.Recovered = Recover(snapshot, f.Config.NodeName, want.Routes)
				got := Desire(f)
				if diff := cmp.Diff(want.Routes, got.Routes, byValue); diff != "" {
					t.Errorf("routes (-with all manifests +without %s):\n%s", missing, diff)
				}
				if diff := cmp.Diff(want.KernelRoutes, got.KernelRoutes, byValue); diff != "" {
					t.Errorf("kernel routes (-with all manifests +without %s):\n%s", missing, diff)
				}
				if got.TunnelRules != want.TunnelRules || got.MTU != want.MTU {
					t.Errorf("rules %t, MTU %d; want %t, %d", got.TunnelRules, got.MTU, want.TunnelRules, want.MTU)
				}
			})
		}
	}
}
