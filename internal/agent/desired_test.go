package agent

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/service"
)

var (
	uplinkMAC = datapath.MAC{2, 0, 0, 0, 0, 1}
	nodeBMAC  = datapath.MAC{2, 0, 0, 0, 0, 2}
	podMAC    = datapath.MAC{2, 0, 0, 0, 1, 1}
	hostMAC   = datapath.MAC{2, 0, 0, 0, 1, 2}
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefixes(all ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func addrs(all ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range all {
		out = append(out, addr(s))
	}
	return out
}

// twoNodes is node a with one pod, seen from a; b is its neighbour, resolved over IPv4 only.
func twoNodes() facts {
	return facts{
		config: Config{NodeName: "a", Masquerade: true, Tunnel: TunnelAuto, TunnelPort: 4789},
		snapshot: &cluster.Snapshot{Nodes: []cluster.Node{
			{Name: "a", Addresses: addrs("192.0.2.1", "2001:db8::1"), PodCIDRs: prefixes("10.1.1.0/24", "fd00:1::/64")},
			{Name: "b", Addresses: addrs("192.0.2.2", "2001:db8::2"), PodCIDRs: prefixes("10.1.2.0/24", "fd00:2::/64")},
		}},
		uplink:     &device.Uplink{Name: "eth0", Index: 7, MAC: uplinkMAC[:], MTU: 1500, Addresses: prefixes("192.0.2.1/24", "2001:db8::1/64")},
		neighbours: map[netip.Addr]net.HardwareAddr{addr("192.0.2.2"): nodeBMAC[:]},
		held:       addrs("192.0.2.1", "2001:db8::1"),
		local:      addrs("127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"),
		endpoints: []agentapi.Endpoint{{
			Attachment: agentapi.Attachment{ContainerID: "c1", IfName: "eth0"}, HostDevice: "bl1", HostIfIndex: 21,
			PodMAC: net.HardwareAddr(podMAC[:]).String(), HostMAC: net.HardwareAddr(hostMAC[:]).String(),
			Addresses: addrs("10.1.1.2", "fd00:1::2"), MTU: 1500,
		}},
	}
}

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.SortSlices(func(a, b device.Route) bool { return a.Prefix.Compare(b.Prefix) < 0 }),
	cmp.AllowUnexported(desired{}, tunnel{}),
}

func TestDesireOfTwoNodes(t *testing.T) {
	pod := datapath.Endpoint{Interface: 21, PodMAC: podMAC, HostMAC: hostMAC}
	viaIPv4 := datapath.Route{Kind: datapath.RouteRemote, Interface: 7, MTU: 1500, NextHop: addr("192.0.2.2"), NextHopMAC: nodeBMAC, UplinkMAC: uplinkMAC}
	viaIPv6 := datapath.Route{Kind: datapath.RouteRemote, Interface: 7, MTU: 1500, NextHop: addr("2001:db8::2"), UplinkMAC: uplinkMAC}
	local := datapath.Route{Kind: datapath.RouteLocal}
	stack := datapath.Route{Kind: datapath.RouteCluster}
	cluster := prefixes("10.1.1.0/24", "10.1.2.0/24", "192.0.2.1/32", "192.0.2.2/32", "2001:db8::1/128", "2001:db8::2/128", "fd00:1::/64", "fd00:2::/64")
	want := desired{
		mtu:       1500,
		podCIDRs:  prefixes("10.1.1.0/24", "fd00:1::/64"),
		endpoints: map[netip.Addr]datapath.Endpoint{addr("10.1.1.2"): pod, addr("fd00:1::2"): pod},
		routes: map[netip.Prefix]datapath.Route{
			cluster[0]: local, cluster[1]: viaIPv4, cluster[2]: stack, cluster[3]: viaIPv4,
			cluster[4]: stack, cluster[5]: viaIPv6, cluster[6]: local, cluster[7]: viaIPv6,
		},
		kernelRoutes: []device.Route{
			{Prefix: netip.MustParsePrefix("10.1.1.0/24"), Unreachable: true},
			{Prefix: netip.MustParsePrefix("10.1.1.2/32"), Device: 21, Source: addr("192.0.2.1")},
			{Prefix: netip.MustParsePrefix("10.1.2.0/24"), Via: addr("192.0.2.2"), Device: 7},
			{Prefix: netip.MustParsePrefix("fd00:1::/64"), Unreachable: true},
			{Prefix: netip.MustParsePrefix("fd00:1::2/128"), Device: 21, Source: addr("2001:db8::1")},
			{Prefix: netip.MustParsePrefix("fd00:2::/64"), Via: addr("2001:db8::2"), Device: 7},
		},
		neighbours: addrs("192.0.2.2", "2001:db8::2"),

		tunnelSources: addrs("192.0.2.1", "2001:db8::1"),
		uplinks:       map[int]datapath.Uplink{7: {IPv4: addr("192.0.2.1"), IPv6: addr("2001:db8::1"), MAC: uplinkMAC, MTU: 1500}},
		services: service.NodeConfig{
			Name: "a", NodePortAddresses: addrs("192.0.2.1", "2001:db8::1"), HostPortAddresses: addrs("127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"),
		},
		masquerade: true,
		nodes: []agentapi.RemoteNode{{
			Name: "b", Addresses: addrs("192.0.2.2", "2001:db8::2"), PodCIDRs: prefixes("10.1.2.0/24", "fd00:2::/64"), Way: agentapi.WayDirect, MTU: 1500, MAC: net.HardwareAddr(nodeBMAC[:]).String(),
		}},
	}
	if diff := cmp.Diff(want, desire(twoNodes()), byValue); diff != "" {
		t.Errorf("desired state (-want +got):\n%s", diff)
	}
}

func TestDesireChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*facts)
		check  func(t *testing.T, d desired)
	}{
		"an MTU that was asked for wins over the uplink's": {
			func(f *facts) { f.config.MTU = 1400 },
			func(t *testing.T, d desired) {
				if r := d.routes[netip.MustParsePrefix("10.1.2.0/24")]; d.mtu != 1400 || r.MTU != 1400 {
					t.Errorf("pods have MTU %d, the route %d; want 1400", d.mtu, r.MTU)
				}
				for _, r := range d.kernelRoutes {
					if r.Via.IsValid() && r.MTU != 1400 {
						t.Errorf("kernel route %s has MTU %d", r.Prefix, r.MTU)
					}
				}
			},
		},
		"an MTU above the uplink's is the pods' and not the path's": {
			func(f *facts) { f.config.MTU = 9000 },
			func(t *testing.T, d desired) {
				if r := d.routes[netip.MustParsePrefix("10.1.2.0/24")]; d.mtu != 9000 || r.MTU != 1500 {
					t.Errorf("pods have MTU %d, the route %d; want 9000 and 1500", d.mtu, r.MTU)
				}
				for _, r := range d.kernelRoutes {
					if r.Via.IsValid() && r.MTU != 1500 {
						t.Errorf("kernel route %s has MTU %d", r.Prefix, r.MTU)
					}
				}
				wantProblem(t, d, "--mtu 9000 is more than the uplink eth0 carries, 1500")
			},
		},
		"without masquerading nothing is translated": {
			func(f *facts) { f.config.Masquerade = false },
			func(t *testing.T, d desired) {
				if d.masquerade {
					t.Error("masquerades")
				}
			},
		},
		"networks that are not masqueraded to are like the cluster's": {
			func(f *facts) { f.config.NonMasquerade = prefixes("172.16.0.0/12", "10.1.2.0/24") },
			func(t *testing.T, d desired) {
				if kind := d.routes[netip.MustParsePrefix("172.16.0.0/12")].Kind; kind != datapath.RouteCluster {
					t.Errorf("kind %v", kind)
				}
				if kind := d.routes[netip.MustParsePrefix("10.1.2.0/24")].Kind; kind != datapath.RouteRemote {
					t.Errorf("the pods of another node are of kind %v", kind)
				}
			},
		},
		"a node that is not on the link is left to the stack and reported where there is no VXLAN": {
			func(f *facts) {
				f.snapshot.Nodes[1].Addresses = addrs("198.51.100.2")
				f.tunnel.missing = device.ErrNoVXLAN
			},
			func(t *testing.T, d desired) {
				if r := d.routes[netip.MustParsePrefix("10.1.2.0/24")]; r.Kind != datapath.RouteCluster {
					t.Errorf("route is %+v", r)
				}
				wantProblem(t, d, `pods of node "b" in 10.1.2.0/24 cannot be reached`)
				wantProblem(t, d, "this kernel has no VXLAN devices")
				if len(d.neighbours) != 0 {
					t.Errorf("neighbours are %v", d.neighbours)
				}
			},
		},
		"without an uplink pods of this node still work": {
			func(f *facts) { f.uplink = nil },
			func(t *testing.T, d desired) {
				wantProblem(t, d, "there is no uplink")
				if len(d.endpoints) != 2 || d.routes[netip.MustParsePrefix("10.1.1.0/24")].Kind != datapath.RouteLocal {
					t.Errorf("endpoints %v, routes %v", d.endpoints, d.routes)
				}
			},
		},
		"an uplink that is not there is named": {
			func(f *facts) { f.uplink, f.config.Uplink = nil, "eth7" },
			func(t *testing.T, d desired) {
				wantProblem(t, d, "no uplink (--uplink eth7: no such device, or it is down)")
			},
		},
		"a kernel without IPv6 serves the other range": {
			func(f *facts) { f.noIPv6 = true },
			func(t *testing.T, d desired) {
				wantProblem(t, d, "no addresses from fd00:1::/64: this kernel has no IPv6")
				if diff := cmp.Diff(prefixes("10.1.1.0/24"), d.podCIDRs, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
					t.Errorf("pod ranges (-want +got):\n%s", diff)
				}
				for _, r := range d.kernelRoutes {
					if r.Unreachable && r.Prefix.Addr().Is6() {
						t.Errorf("wants the route %+v", r)
					}
				}
			},
		},
		"this node unknown": {
			func(f *facts) { f.config.NodeName = "z" },
			func(t *testing.T, d desired) {
				wantProblem(t, d, `node "z" is not among the 2 Node objects`)
				if d.masquerade {
					t.Error("masquerades without knowing its own pods")
				}
			},
		},
		"a pod whose range has changed is reported and keeps its routes": {
			func(f *facts) { f.snapshot.Nodes[0].PodCIDRs = prefixes("10.9.0.0/24") },
			func(t *testing.T, d desired) {
				wantProblem(t, d, "10.1.1.2, which is not in this node's ranges")
				if _, ok := d.endpoints[addr("10.1.1.2")]; !ok {
					t.Error("the endpoint is gone")
				}
				if len(d.pods) != 2 {
					t.Errorf("problems of pods are %+v", d.pods)
				}
				for prefix, kind := range map[string]datapath.RouteKind{"10.9.0.0/24": datapath.RouteLocal, "10.1.1.2/32": datapath.RouteLocal} {
					if got := d.routes[netip.MustParsePrefix(prefix)].Kind; got != kind {
						t.Errorf("%s is of kind %v", prefix, got)
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := twoNodes()
			c.change(&f)
			c.check(t, desire(f))
		})
	}
}

func wantProblem(t *testing.T, d desired, part string) {
	t.Helper()
	for _, p := range d.problems {
		if strings.Contains(p, part) {
			return
		}
	}
	t.Errorf("no problem says %q; problems are %q", part, d.problems)
}
