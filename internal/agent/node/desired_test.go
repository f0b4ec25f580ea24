package node

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
	"github.com/beeline-cni/beeline/internal/service"
)

var (
	uplinkMAC = fwd.MAC{2, 0, 0, 0, 0, 1}
	nodeBMAC  = fwd.MAC{2, 0, 0, 0, 0, 2}
	podMAC    = fwd.MAC{2, 0, 0, 0, 1, 1}
	hostMAC   = fwd.MAC{2, 0, 0, 0, 1, 2}
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
func twoNodes() Facts {
	return Facts{
		Config: Config{NodeName: "a", Masquerade: true, Tunnel: TunnelAuto, TunnelPort: 4789},
		Snapshot: &cluster.Snapshot{Nodes: []cluster.Node{
			{Name: "a", Addresses: addrs("192.0.2.1", "2001:db8::1"), PodCIDRs: prefixes("10.1.1.0/24", "fd00:1::/64")},
			{Name: "b", Addresses: addrs("192.0.2.2", "2001:db8::2"), PodCIDRs: prefixes("10.1.2.0/24", "fd00:2::/64")},
		}},
		Uplink:     &netdev.Uplink{Name: "eth0", Index: 7, MAC: uplinkMAC[:], MTU: 1500, Addresses: prefixes("192.0.2.1/24", "2001:db8::1/64")},
		Neighbours: map[netip.Addr]net.HardwareAddr{addr("192.0.2.2"): nodeBMAC[:]},
		Held:       addrs("192.0.2.1", "2001:db8::1"),
		Local:      addrs("127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"),
		Endpoints: []agentapi.Endpoint{{
			Attachment: agentapi.Attachment{ContainerID: "c1", IfName: "eth0"}, HostDevice: "bl1", HostIfIndex: 21,
			PodMAC: net.HardwareAddr(podMAC[:]).String(), HostMAC: net.HardwareAddr(hostMAC[:]).String(),
			Addresses: addrs("10.1.1.2", "fd00:1::2"), MTU: 1500,
		}},
	}
}

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.SortSlices(func(a, b route.Route) bool { return a.Prefix.Compare(b.Prefix) < 0 }),
}

func TestDesireOfTwoNodes(t *testing.T) {
	pod := fwd.Endpoint{Interface: 21, PodMAC: podMAC, HostMAC: hostMAC}
	viaIPv4 := fwd.Route{Kind: fwd.RouteRemote, Interface: 7, MTU: 1500, NextHop: addr("192.0.2.2"), NextHopMAC: nodeBMAC, UplinkMAC: uplinkMAC}
	viaIPv6 := fwd.Route{Kind: fwd.RouteRemote, Interface: 7, MTU: 1500, NextHop: addr("2001:db8::2"), UplinkMAC: uplinkMAC}
	local := fwd.Route{Kind: fwd.RouteLocal}
	stack := fwd.Route{Kind: fwd.RouteCluster}
	cluster := prefixes("10.1.1.0/24", "10.1.2.0/24", "192.0.2.1/32", "192.0.2.2/32", "2001:db8::1/128", "2001:db8::2/128", "fd00:1::/64", "fd00:2::/64")
	want := Desired{
		MTU:       1500,
		PodCIDRs:  prefixes("10.1.1.0/24", "fd00:1::/64"),
		Endpoints: map[netip.Addr]fwd.Endpoint{addr("10.1.1.2"): pod, addr("fd00:1::2"): pod},
		Routes: map[netip.Prefix]fwd.Route{
			cluster[0]: local, cluster[1]: viaIPv4, cluster[2]: stack, cluster[3]: viaIPv4,
			cluster[4]: stack, cluster[5]: viaIPv6, cluster[6]: local, cluster[7]: viaIPv6,
		},
		KernelRoutes: []route.Route{
			{Prefix: netip.MustParsePrefix("10.1.1.0/24"), Unreachable: true},
			{Prefix: netip.MustParsePrefix("10.1.1.2/32"), Device: 21, Source: addr("192.0.2.1")},
			{Prefix: netip.MustParsePrefix("10.1.2.0/24"), Via: addr("192.0.2.2"), Device: 7},
			{Prefix: netip.MustParsePrefix("fd00:1::/64"), Unreachable: true},
			{Prefix: netip.MustParsePrefix("fd00:1::2/128"), Device: 21, Source: addr("2001:db8::1")},
			{Prefix: netip.MustParsePrefix("fd00:2::/64"), Via: addr("2001:db8::2"), Device: 7},
		},
		Neighbours: addrs("192.0.2.2", "2001:db8::2"),

		TunnelSources: addrs("192.0.2.1", "2001:db8::1"),
		Uplinks:       map[int]fwd.Uplink{7: {IPv4: addr("192.0.2.1"), IPv6: addr("2001:db8::1"), MAC: uplinkMAC, MTU: 1500}},
		Services: service.NodeConfig{
			Name: "a", NodePortAddresses: addrs("192.0.2.1", "2001:db8::1"), HostPortAddresses: addrs("127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"),
		},
		Masquerade: true,
		Nodes: []agentapi.RemoteNode{{
			Name: "b", Addresses: addrs("192.0.2.2", "2001:db8::2"), PodCIDRs: prefixes("10.1.2.0/24", "fd00:2::/64"), Path: agentapi.NodePathDirect, MTU: 1500, MAC: net.HardwareAddr(nodeBMAC[:]).String(),
		}},
	}
	if diff := cmp.Diff(want, Desire(twoNodes()), byValue); diff != "" {
		t.Errorf("desired state (-want +got):\n%s", diff)
	}
}

func TestDesireChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		check  func(t *testing.T, d Desired)
	}{
		"a configured MTU overrides the uplink's": {
			func(f *Facts) { f.Config.MTU = 1400 },
			func(t *testing.T, d Desired) {
				if r := d.Routes[netip.MustParsePrefix("10.1.2.0/24")]; d.MTU != 1400 || r.MTU != 1400 {
					t.Errorf("pods have MTU %d, the route %d; want 1400", d.MTU, r.MTU)
				}
				for _, r := range d.KernelRoutes {
					if r.Via.IsValid() && r.MTU != 1400 {
						t.Errorf("kernel route %s has MTU %d", r.Prefix, r.MTU)
					}
				}
			},
		},
		"an MTU above the uplink's is the pods' and not the path's": {
			func(f *Facts) { f.Config.MTU = 9000 },
			func(t *testing.T, d Desired) {
				if r := d.Routes[netip.MustParsePrefix("10.1.2.0/24")]; d.MTU != 9000 || r.MTU != 1500 {
					t.Errorf("pods have MTU %d, the route %d; want 9000 and 1500", d.MTU, r.MTU)
				}
				for _, r := range d.KernelRoutes {
					if r.Via.IsValid() && r.MTU != 1500 {
						t.Errorf("kernel route %s has MTU %d", r.Prefix, r.MTU)
					}
				}
				wantProblem(t, d, "--mtu 9000 is more than the uplink eth0 carries, 1500")
			},
		},
		"without masquerading nothing is translated": {
			func(f *Facts) { f.Config.Masquerade = false },
			func(t *testing.T, d Desired) {
				if d.Masquerade {
					t.Error("masquerades")
				}
			},
		},
		"networks that are not masqueraded to are like the cluster's": {
			func(f *Facts) { f.Config.NonMasquerade = prefixes("172.16.0.0/12", "10.1.2.0/24") },
			func(t *testing.T, d Desired) {
				if kind := d.Routes[netip.MustParsePrefix("172.16.0.0/12")].Kind; kind != fwd.RouteCluster {
					t.Errorf("kind %v", kind)
				}
				if kind := d.Routes[netip.MustParsePrefix("10.1.2.0/24")].Kind; kind != fwd.RouteRemote {
					t.Errorf("the pods of another node are of kind %v", kind)
				}
			},
		},
		"a node that is not on the link is left to the stack and reported where there is no VXLAN": {
			func(f *Facts) {
				f.Snapshot.Nodes[1].Addresses = addrs("198.51.100.2")
				f.Tunnel.Missing = vxlan.ErrUnsupported
			},
			func(t *testing.T, d Desired) {
				if r := d.Routes[netip.MustParsePrefix("10.1.2.0/24")]; r.Kind != fwd.RouteCluster {
					t.Errorf("route is %+v", r)
				}
				wantProblem(t, d, `pods of node "b" in 10.1.2.0/24 cannot be reached`)
				wantProblem(t, d, "this kernel has no VXLAN devices")
				if len(d.Neighbours) != 0 {
					t.Errorf("neighbours are %v", d.Neighbours)
				}
			},
		},
		"without an uplink pods of this node still work": {
			func(f *Facts) { f.Uplink = nil },
			func(t *testing.T, d Desired) {
				wantProblem(t, d, "there is no uplink")
				if len(d.Endpoints) != 2 || d.Routes[netip.MustParsePrefix("10.1.1.0/24")].Kind != fwd.RouteLocal {
					t.Errorf("endpoints %v, routes %v", d.Endpoints, d.Routes)
				}
			},
		},
		"an uplink that is not there is named": {
			func(f *Facts) {
				f.Uplink, f.Config.Uplink, f.NoUplinks = nil, "eth7", []error{errors.New("device eth7 is down")}
			},
			func(t *testing.T, d Desired) {
				wantProblem(t, d, "--uplink=eth7: device eth7 is down")
			},
		},
		"a kernel without IPv6 serves the other range": {
			func(f *Facts) { f.NoIPv6 = true },
			func(t *testing.T, d Desired) {
				wantProblem(t, d, "no addresses from fd00:1::/64: this kernel has no IPv6")
				if diff := cmp.Diff(prefixes("10.1.1.0/24"), d.PodCIDRs, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
					t.Errorf("pod ranges (-want +got):\n%s", diff)
				}
				for _, r := range d.KernelRoutes {
					if r.Unreachable && r.Prefix.Addr().Is6() {
						t.Errorf("wants the route %+v", r)
					}
				}
			},
		},
		"this node unknown": {
			func(f *Facts) { f.Config.NodeName = "z" },
			func(t *testing.T, d Desired) {
				wantProblem(t, d, `node "z" is not among the 2 Node objects`)
				if d.Masquerade {
					t.Error("masquerades without knowing its own pods")
				}
			},
		},
		"a pod whose range has changed is reported and keeps its routes": {
			func(f *Facts) { f.Snapshot.Nodes[0].PodCIDRs = prefixes("10.9.0.0/24") },
			func(t *testing.T, d Desired) {
				wantProblem(t, d, "10.1.1.2, which is not in this node's ranges")
				if _, ok := d.Endpoints[addr("10.1.1.2")]; !ok {
					t.Error("the endpoint is missing")
				}
				if len(d.Pods) != 2 {
					t.Errorf("problems of pods are %+v", d.Pods)
				}
				for prefix, kind := range map[string]fwd.RouteKind{"10.9.0.0/24": fwd.RouteLocal, "10.1.1.2/32": fwd.RouteLocal} {
					if got := d.Routes[netip.MustParsePrefix(prefix)].Kind; got != kind {
						t.Errorf("%s is of kind %v", prefix, got)
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := twoNodes()
			c.change(&f)
			c.check(t, Desire(f))
		})
	}
}

func wantProblem(t *testing.T, d Desired, part string) {
	t.Helper()
	for _, p := range d.Problems {
		if strings.Contains(p, part) {
			return
		}
	}
	t.Errorf("no problem contains %q; problems are %q", part, d.Problems)
}
