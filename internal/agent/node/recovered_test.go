package node

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
)

// without gives the facts of twoNodes for an agent that starts while the manifests of these nodes are invalid and the
// table of routes is that of an earlier agent.
func without(names ...string) Facts {
	f := twoNodes()
	found := Desire(f).Routes
	snapshot := &cluster.Snapshot{Incomplete: true}
	for _, n := range f.Snapshot.Nodes {
		if !strings.Contains(strings.Join(names, " "), n.Name) {
			snapshot.Nodes = append(snapshot.Nodes, n)
		}
	}
	_, known := snapshot.Node(f.Config.NodeName)
	f.Snapshot, f.Recovered = Recover(snapshot, f.Config.NodeName, found)
	f.Unknown = !known
	return f
}

// Whatever the manifests lack when the agent starts, the kernel keeps its state.
func TestMissingObjectsCutNothingOff(t *testing.T) {
	whole := Desire(twoNodes())
	for _, missing := range [][]string{{"b"}, {"a"}, {"a", "b"}} {
		t.Run(strings.Join(missing, "+"), func(t *testing.T) {
			f := without(missing...)
			d := Desire(f)
			for part, differ := range map[string]string{
				"routes":        cmp.Diff(whole.Routes, d.Routes, byValue),
				"kernel routes": cmp.Diff(whole.KernelRoutes, d.KernelRoutes, byValue),
				"masquerade":    cmp.Diff(whole.Masquerade, d.Masquerade),
				"pod ranges":    cmp.Diff(whole.PodCIDRs, d.PodCIDRs, byValue),
			} {
				if differ != "" {
					t.Errorf("%s (-with all manifests +without %v):\n%s", part, missing, differ)
				}
			}
			wantProblem(t, d, "Node objects are missing")
			if missing[0] == "a" {
				wantProblem(t, d, `node "a" is not among the`)
			}
		})
	}
}

// The cluster takes precedence over the table.
func TestWithFoundYieldsToTheCluster(t *testing.T) {
	f := twoNodes()
	found := Desire(f).Routes
	changed := &cluster.Snapshot{Nodes: []cluster.Node{
		{Name: "a", Addresses: addrs("192.0.2.1", "2001:db8::1"), PodCIDRs: prefixes("10.1.7.0/24")},
		{Name: "c", Addresses: addrs("192.0.2.2", "2001:db8::2"), PodCIDRs: prefixes("10.1.0.0/22", "fd00:2::/64")},
	}}
	got, added := Recover(changed, "a", found)
	if added != 0 {
		t.Errorf("added %d nodes: %+v", added, got.Nodes)
	}
	if diff := cmp.Diff(changed.Nodes, got.Nodes, byValue); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestFreshNodeFindsNothing(t *testing.T) {
	got, added := Recover(&cluster.Snapshot{Incomplete: true}, "a", nil)
	if added != 0 || len(got.Nodes) != 0 || !got.Incomplete {
		t.Errorf("%d nodes in %+v", added, got)
	}
	if !listed(&cluster.Snapshot{Nodes: []cluster.Node{{PodCIDRs: prefixes("10.1.0.0/16")}}}, netip.MustParsePrefix("10.1.2.0/24")) {
		t.Error("a range of which another node has a part is not listed")
	}
}

// What was closed because its node had no address stays closed.
func TestRecoverClosed(t *testing.T) {
	closed := netip.MustParsePrefix("10.1.3.0/24")
	for _, nextHop := range []netip.Addr{{}, netip.IPv6Unspecified()} { // the latter is how the table gives none
		f := encrypted()
		f.Snapshot, f.Recovered = Recover(&cluster.Snapshot{Incomplete: true}, f.Config.NodeName, map[netip.Prefix]fwd.Route{closed: {Kind: fwd.RouteEncrypted, MTU: maxMTU, NextHop: nextHop}})
		d := Desire(f)
		if r := d.Routes[closed]; r.Kind != fwd.RouteEncrypted || r.Interface != 0 {
			t.Errorf("next hop %v: the route is %+v", nextHop, r)
		}
		for p := range d.Routes {
			if p.Addr().IsUnspecified() {
				t.Errorf("next hop %v: there is a route to %v", nextHop, p)
			}
		}
	}
}
