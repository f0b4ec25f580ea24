package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/device"
)

const tunnelIndex = 9

// threeNodes is twoNodes with a node c in another subnet.
func threeNodes() facts {
	f := twoNodes()
	f.snapshot.Nodes = append(f.snapshot.Nodes, cluster.Node{
		Name: "c", Addresses: addrs("198.51.100.3", "2001:db8:1::3"), PodCIDRs: prefixes("10.1.3.0/24", "fd00:3::/64"),
	})
	f.tunnel.index = tunnelIndex
	return f
}

// throughTunnel is the route to what a node has at the other end.
func throughTunnel(end string, mtu int) datapath.Route {
	return datapath.Route{
		Kind: datapath.RouteTunnel, Interface: tunnelIndex, MTU: mtu, NextHop: addr(end),
		NextHopMAC: datapath.MAC{2, 0xbe, 0xe1, 0, 0, 1}, UplinkMAC: datapath.MAC{2, 0xbe, 0xe1, 0, 0, 2},
	}
}

// Nodes of other subnets are behind tunnels, and nothing changes for the others.
func TestDesireTunnelBesideDirect(t *testing.T) {
	d := desire(threeNodes())
	without := desire(twoNodes())
	for p, want := range without.routes {
		if d.routes[p] != want {
			t.Errorf("the route to %s is %+v, without the third node %+v", p, d.routes[p], want)
		}
	}
	for _, p := range prefixes("10.1.3.0/24", "fd00:3::/64", "198.51.100.3/32", "2001:db8:1::3/128") {
		if want := throughTunnel("198.51.100.3", 1450); d.routes[p] != want {
			t.Errorf("the route to %s is %+v, want %+v", p, d.routes[p], want)
		}
	}
	for _, want := range []device.Route{
		{Prefix: netip.MustParsePrefix("10.1.3.0/24"), Via: addr("169.254.1.1"), OnLink: true, Device: tunnelIndex, MTU: 1450, Source: addr("192.0.2.1")},
		{Prefix: netip.MustParsePrefix("fd00:3::/64"), Via: addr("fe80::1"), Device: tunnelIndex, MTU: 1450, Source: addr("2001:db8::1")},
		{Prefix: netip.MustParsePrefix("198.51.100.3/32"), Via: addr("169.254.1.1"), OnLink: true, Device: tunnelIndex, MTU: 1450, Table: device.TunnelTable},
		{Prefix: netip.MustParsePrefix("2001:db8:1::3/128"), Via: addr("fe80::1"), Device: tunnelIndex, MTU: 1450, Table: device.TunnelTable},
	} {
		if !slices.Contains(d.kernelRoutes, want) {
			t.Errorf("the stack lacks the route %+v", want)
		}
	}
	if len(d.kernelRoutes) != len(without.kernelRoutes)+4 {
		t.Errorf("%d kernel routes, want 4 more than %d", len(d.kernelRoutes), len(without.kernelRoutes))
	}
	if !d.tunnelRules || d.mtu != 1500 || len(d.problems) != 0 {
		t.Errorf("rules %t, MTU of pods %d, problems %q", d.tunnelRules, d.mtu, d.problems)
	}
	if diff := cmp.Diff(without.neighbours, d.neighbours, byValue); diff != "" {
		t.Errorf("neighbours (-without the third node +with it):\n%s", diff)
	}
	if _, known := d.routes[netip.MustParsePrefix("198.51.100.3/32")]; !known {
		t.Error("what pods send to a node behind a tunnel is masqueraded")
	}
	if n := d.nodes[1]; n.Way != agentapi.WayVXLAN || n.MTU != 1450 || n.MAC != "" {
		t.Errorf("node c is told as %+v", n)
	}
}

func TestDesireTunnelChanges(t *testing.T) {
	pods4, pods6 := netip.MustParsePrefix("10.1.3.0/24"), netip.MustParsePrefix("fd00:3::/64")
	for name, c := range map[string]struct {
		change func(*facts)
		check  func(t *testing.T, d desired)
	}{
		"none: the routers know": {
			func(f *facts) { f.config.Tunnel = TunnelNone; f.tunnel = tunnel{} },
			func(t *testing.T, d desired) {
				if d.routes[pods4].Kind != datapath.RouteCluster || d.tunnelRules || len(d.problems) != 0 || d.nodes[1].Way != agentapi.WayRouted {
					t.Errorf("%+v, rules %t, problems %q, node %+v", d.routes[pods4], d.tunnelRules, d.problems, d.nodes[1])
				}
			},
		},
		"vxlan: all nodes, and pods that need not find out": {
			func(f *facts) { f.config.Tunnel = TunnelVXLAN },
			func(t *testing.T, d desired) {
				if got := d.routes[netip.MustParsePrefix("10.1.2.0/24")]; got != throughTunnel("192.0.2.2", 1450) || d.mtu != 1450 || len(d.neighbours) != 0 {
					t.Errorf("%+v, MTU of pods %d, neighbours %v", got, d.mtu, d.neighbours)
				}
				if d.nodes[0].Way != agentapi.WayVXLAN || d.nodes[1].Way != agentapi.WayVXLAN {
					t.Errorf("%+v", d.nodes)
				}
			},
		},
		"vxlan over IPv6 takes more": {
			func(f *facts) {
				f.config.Tunnel, f.held = TunnelVXLAN, addrs("2001:db8::1")
			},
			func(t *testing.T, d desired) {
				if got := d.routes[pods4]; got != throughTunnel("2001:db8:1::3", 1430) || d.mtu != 1430 {
					t.Errorf("%+v, MTU of pods %d", got, d.mtu)
				}
			},
		},
		"vxlan without another node: the room is left all the same": {
			func(f *facts) { f.config.Tunnel, f.snapshot.Nodes = TunnelVXLAN, f.snapshot.Nodes[:1] },
			func(t *testing.T, d desired) {
				if d.mtu != 1450 {
					t.Errorf("MTU of pods %d", d.mtu)
				}
			},
		},
		"one family over the link, the other through a tunnel": {
			func(f *facts) { f.snapshot.Nodes[2].Addresses = addrs("192.0.2.3") },
			func(t *testing.T, d desired) {
				if d.routes[pods4].Kind != datapath.RouteRemote || d.routes[pods6] != throughTunnel("192.0.2.3", 1450) {
					t.Errorf("IPv4 %+v, IPv6 %+v", d.routes[pods4], d.routes[pods6])
				}
				if d.routes[netip.MustParsePrefix("192.0.2.3/32")].Kind != datapath.RouteRemote {
					t.Error("the node's address on the link is not reached over it")
				}
				if n := d.nodes[1]; n.Way != agentapi.WayDirect+", "+agentapi.WayVXLAN || n.MTU != 1450 {
					t.Errorf("node c is told as %+v", n)
				}
			},
		},
		"an MTU that was asked for holds in the tunnel": {
			func(f *facts) { f.config.MTU = 1400 },
			func(t *testing.T, d desired) {
				if got := d.routes[pods4]; got.MTU != 1400 {
					t.Errorf("%+v", got)
				}
			},
		},
		"no family in common": {
			func(f *facts) {
				f.held = addrs("192.0.2.1")
				f.snapshot.Nodes[2].Addresses = addrs("2001:db8:1::3")
			},
			func(t *testing.T, d desired) {
				wantProblem(t, d, `pods of node "c" in 10.1.3.0/24 cannot be reached: none of its addresses [2001:db8:1::3] is of a family`)
				if d.routes[pods4].Kind != datapath.RouteCluster {
					t.Errorf("%+v", d.routes[pods4])
				}
			},
		},
		"a link too small for IPv6 in a tunnel": {
			func(f *facts) { f.uplink.MTU = 1320 },
			func(t *testing.T, d desired) {
				wantProblem(t, d, `pods of node "c" in fd00:3::/64 cannot be reached: a tunnel over eth0 carries packets of 1270 bytes, and IPv6 needs 1280`)
				pods6 := netip.MustParsePrefix("fd00:3::/64")
				if d.routes[pods6].Kind != datapath.RouteCluster || d.routes[pods4].Kind != datapath.RouteTunnel {
					t.Errorf("IPv6 %+v, IPv4 %+v", d.routes[pods6], d.routes[pods4])
				}
				for _, r := range d.kernelRoutes {
					if r.Prefix == pods6 {
						t.Errorf("the stack has a route through a device without IPv6: %+v", r)
					}
				}
			},
		},
		"somebody has the port": {
			func(f *facts) { f.tunnel = tunnel{missing: device.ErrTunnelTaken} },
			func(t *testing.T, d desired) {
				wantProblem(t, d, "somebody else is in the way of the VXLAN device")
				if d.routes[netip.MustParsePrefix("10.1.2.0/24")].Kind != datapath.RouteRemote {
					t.Error("nodes on the link suffer")
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := threeNodes()
			c.change(&f)
			c.check(t, desire(f))
		})
	}
}

// The device is there for those nodes that need it and has room for the largest packet of any of them.
func TestTunnelSpec(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*facts)
		want   *device.TunnelSpec
	}{
		"a node in another subnet": {func(*facts) {}, &device.TunnelSpec{Port: 4789, MTU: 1450, Addresses: addrs("192.0.2.1", "2001:db8::1")}},
		"over IPv6":                {func(f *facts) { f.held = addrs("2001:db8::1") }, &device.TunnelSpec{Port: 4789, MTU: 1430, Addresses: addrs("2001:db8::1")}},
		"all on the link":          {func(f *facts) { f.snapshot.Nodes = f.snapshot.Nodes[:2] }, nil},
		"all on the link, as asked": {
			func(f *facts) { f.snapshot.Nodes, f.config.Tunnel = f.snapshot.Nodes[:2], TunnelVXLAN },
			&device.TunnelSpec{Port: 4789, MTU: 1450, Addresses: addrs("192.0.2.1", "2001:db8::1")},
		},
		"none":                   {func(f *facts) { f.config.Tunnel = TunnelNone }, nil},
		"no uplink":              {func(f *facts) { f.uplink = nil }, nil},
		"none, asked for anyway": {func(f *facts) { f.uplink, f.config.Tunnel = nil, TunnelVXLAN }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := threeNodes()
			c.change(&f)
			spec, needed := f.tunnelSpec()
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

// An agent that starts while manifests are broken keeps tunnels as well.
func TestMissingObjectsKeepTunnels(t *testing.T) {
	for _, config := range []Tunnel{TunnelAuto, TunnelVXLAN} {
		whole := threeNodes()
		whole.config.Tunnel = config
		want := desire(whole)
		for _, missing := range []string{"c", "bc", "abc"} {
			t.Run(string(config)+" without "+missing, func(t *testing.T) {
				f := threeNodes()
				f.config.Tunnel = config
				told := &cluster.Snapshot{Incomplete: true}
				for _, n := range f.snapshot.Nodes {
					if !strings.Contains(missing, n.Name) {
						told.Nodes = append(told.Nodes, n)
					}
				}
				f.snapshot, f.found = withFound(told, f.config.NodeName, want.routes)
				got := desire(f)
				if diff := cmp.Diff(want.routes, got.routes, byValue); diff != "" {
					t.Errorf("routes (-with all manifests +without %s):\n%s", missing, diff)
				}
				if diff := cmp.Diff(want.kernelRoutes, got.kernelRoutes, byValue); diff != "" {
					t.Errorf("kernel routes (-with all manifests +without %s):\n%s", missing, diff)
				}
				if got.tunnelRules != want.tunnelRules || got.mtu != want.mtu {
					t.Errorf("rules %t, MTU %d; want %t, %d", got.tunnelRules, got.mtu, want.tunnelRules, want.mtu)
				}
			})
		}
	}
}
