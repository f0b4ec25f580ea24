package reconcile

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// twoNodes makes a Reconciler of node a that knows node b, without a kernel: writing a route of the datapath panics.
func twoNodes(pool map[string][]netip.Addr) *Reconciler {
	nodes := []cluster.Node{
		{Name: "a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}},
		{Name: "b", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}},
	}
	r := &Reconciler{vouches: true, snapshot: &cluster.Snapshot{Nodes: nodes, IPPools: []*cluster.IPPool{}}}
	r.Lock, r.Endpoints, r.Datapath, r.Log = &sync.Mutex{}, &endpoint.Endpoints{}, &datapath.Datapath{}, slog.New(slog.DiscardHandler)
	r.Config.NodeName = "a"
	r.PoolAddresses = func() map[string][]netip.Addr { return pool }
	seen, claims := r.nodes(r.snapshot, nil)
	r.known = &node.Facts{
		Config: r.Config, Snapshot: seen, Claims: claims, IPPools: r.snapshot.IPPools,
		Uplink: &netdev.Uplink{Name: "eth0", Index: 7, MTU: 1500, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}},
	}
	r.current = node.Desire(*r.known)
	return r
}

// Nodes that give the same routes are done at once, and known from then on. Other pools are left to a reconciliation, and so are nodes that
// a part of the routes is missing of.
func TestReconcileNodes(t *testing.T) {
	r := twoNodes(map[string][]netip.Addr{"b": {netip.MustParseAddr("192.0.2.9")}})
	before := r.known
	if !r.reconcileNodes() || r.known == before {
		t.Error("the same nodes are left to a reconciliation, or not known")
	}
	if got := r.known.Snapshot.Nodes[1].PodCIDRs; len(got) != 2 || r.known.Snapshot.IPPools != nil {
		t.Errorf("node b has the ranges %v", got)
	}
	r.snapshot = &cluster.Snapshot{Nodes: r.snapshot.Nodes, IPPools: []*cluster.IPPool{{Name: "office"}}}
	if before := r.known; r.reconcileNodes() || r.known != before {
		t.Error("other pools are not left to a reconciliation")
	}
	r = twoNodes(nil)
	own := slices.Clone(r.snapshot.Nodes)
	own[0].PodCIDRs = nil
	r.snapshot = &cluster.Snapshot{Nodes: own, IPPools: r.snapshot.IPPools}
	if before := r.known; r.reconcileNodes() || r.known != before {
		t.Error("another range of this node is not left to a reconciliation")
	}
}

// The nodes are those of the cluster with the addresses of their pods, and without what this node has.
func TestNodesAsSeen(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.9")
	r := twoNodes(map[string][]netip.Addr{"b": {b}})
	s := &cluster.Snapshot{Nodes: slices.Clone(r.snapshot.Nodes)}
	s.Nodes[1].Addresses = append(slices.Clone(s.Nodes[1].Addresses), a)
	seen, claims := r.nodes(s, []netip.Addr{a})
	if got := fmt.Sprint(seen.Nodes[1].Addresses, seen.Nodes[1].PodCIDRs); got != "[192.0.2.2] [10.1.2.0/24 192.0.2.9/32]" || len(claims) != 1 {
		t.Errorf("node b has %s, claims %v", got, claims)
	}
	if len(s.Nodes[1].Addresses) != 2 || len(s.Nodes[1].PodCIDRs) != 1 {
		t.Errorf("the snapshot was changed: %+v", s.Nodes[1])
	}
}

// A step adds and deletes the kernel's routes, all of them if one fails.
func TestApplyNodes(t *testing.T) {
	host := testenv.NewNetns(t)
	devicetest.Inside(t, host, func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far"}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		to := func(text string) route.Route {
			return route.Route{Prefix: netip.MustParsePrefix(text), Device: link.Index}
		}
		has := func(p string) bool {
			all, err := netlink.RouteList(nil, netlink.FAMILY_V4)
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(all, func(r netlink.Route) bool { return r.Dst != nil && r.Dst.String() == p })
		}
		r := &Reconciler{Options: Options{Datapath: &datapath.Datapath{}}}
		if err := r.applyNodes(node.Step{Add: []route.Route{to("10.1.2.0/24")}}); err != nil || !has("10.1.2.0/24") {
			t.Errorf("not added: %v", err)
		}
		bad := to("10.1.3.0/24")
		bad.Device = 1 << 20
		step := node.Step{Add: []route.Route{bad, to("10.1.4.0/24")}, Over: []route.Route{to("10.1.2.0/24")}}
		if err := r.applyNodes(step); err == nil || !has("10.1.4.0/24") || has("10.1.2.0/24") {
			t.Errorf("error %v, the next one is added %t, the one over is there %t", err, has("10.1.4.0/24"), has("10.1.2.0/24"))
		}
		return nil
	})
}
