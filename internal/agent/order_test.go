package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// onNode runs a test with an agent whose node n1 reaches node n2 by up0, and forwards nothing yet.
func onNode(t *testing.T, test func(a *adding, uplink int, nodes *cluster.Snapshot)) {
	onAdding(t, node.RoutingEBPF, func(a *adding) {
		up := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, PeerName: "up1"}
		if err := errors.Join(netlink.LinkAdd(up), netlink.LinkSetUp(up), netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "up1"}})); err != nil {
			t.Fatal(err)
		}
		address, err := netlink.ParseAddr("192.0.2.1/24")
		if err == nil {
			err = netlink.AddrAdd(up, address)
		}
		if err == nil {
			_, err = sysctl.Set("net/ipv4/conf/up0/forwarding", "0")
		}
		if err != nil {
			t.Fatal(err)
		}
		test(a, up.Index, &cluster.Snapshot{Nodes: []cluster.Node{
			{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}},
			{Name: "n2", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}},
		}})
	})
}

// forwards reports whether the kernel stack forwards what comes by up0, and whether it has a route to the pods of n2.
func (a *adding) forwards() (settings, route bool) {
	a.t.Helper()
	value, err := sysctl.Get("net/ipv4/conf/up0/forwarding")
	if err != nil {
		a.t.Fatal(err)
	}
	_, pods, _ := net.ParseCIDR("10.1.2.0/24")
	found, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: rtnl.Protocol, Dst: pods}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_DST)
	if err != nil {
		a.t.Fatal(err)
	}
	return value == "1", len(found) > 0
}

// Tables are filled before programs use them, every device has its programs before the maps are committed, and the kernel stack forwards
// after that: it checks nothing.
func TestReconcileInOrder(t *testing.T) {
	onNode(t, func(a *adding, uplink int, nodes *cluster.Snapshot) {
		ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
		defer end()
		web := a.device("web")
		if _, err := a.Add(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		for pod := range a.endpoints.All() {
			for _, addr := range pod.Addresses {
				if err := a.datapath.Endpoints.Delete(addr); err != nil { // as in new tables
					t.Fatal(err)
				}
			}
		}
		attached := 0
		a.endpoints.FailClosed = failclosed.New(failclosed.Node(func(name string, index int) error {
			attached++
			routes, err := a.datapath.Routes.All()
			if route := routes[nodes.Nodes[1].PodCIDRs[0]]; err != nil || route.Kind != fwd.RouteRemote {
				t.Errorf("no route to the pods of n2 before the programs: %+v, %v", route, err)
			}
			pods, err := a.datapath.Endpoints.All()
			if err != nil || len(pods) != 2 {
				t.Errorf("no pod before the programs: %v, %v", pods, err)
			}
			uplinks, err := a.datapath.Uplinks.All()
			if _, has := uplinks[uplink]; err != nil || !has {
				t.Errorf("no uplink before the programs: %v, %v", uplinks, err)
			}
			return a.datapath.AttachPod(name, index)
		}), true, a.log)
		commit, committed := a.programs.Commit, 0
		a.programs.Commit = func() error {
			committed++
			end()
			if attached == 0 {
				t.Error("committed without programs of a pod")
			}
			if err := a.datapath.CheckUplink("up0", uplink); err != nil {
				t.Errorf("committed without programs: %v", err)
			}
			if settings, route := a.forwards(); settings || route {
				t.Errorf("before the programs are committed: the stack forwards %t, its routes are there %t", settings, route)
			}
			return commit()
		}
		a.reconciler.Update(nodes)
		if err := a.reconciler.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if settings, route := a.forwards(); committed == 0 || !settings || !route {
			t.Errorf("committed %d times; afterwards the stack forwards %t, its routes are there %t", committed, settings, route)
		}
	})
}
