package node

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/vlan"
)

// The addresses of IPPools that pods of other nodes have are ranges of these nodes. Addresses of nodes and of this node's pods are not.
func TestWithPoolAddresses(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	nodes := []cluster.Node{
		{Name: "a", PodCIDRs: []netip.Prefix{prefix("10.1.0.0/24")}, Addresses: []netip.Addr{addr("192.0.2.1")}},
		{Name: "b", PodCIDRs: []netip.Prefix{prefix("10.2.0.0/24")}, Addresses: []netip.Addr{addr("192.0.2.2")}},
		{Name: "c"},
	}
	got := WithPoolAddresses(nodes, "a", map[string][]netip.Addr{
		"a": {addr("192.0.2.100")},
		"b": {addr("192.0.2.102"), addr("2001:db8::5"), addr("192.0.2.101"), addr("192.0.2.1"), addr("192.0.2.2")},
		"z": {addr("192.0.2.103")},
	})
	want := []netip.Prefix{prefix("10.2.0.0/24"), prefix("192.0.2.101/32"), prefix("192.0.2.102/32"), prefix("2001:db8::5/128")}
	if !slices.Equal(got[1].PodCIDRs, want) {
		t.Errorf("node b has %v, want %v", got[1].PodCIDRs, want)
	}
	if len(got[0].PodCIDRs) != 1 || len(got[2].PodCIDRs) != 0 || len(nodes[1].PodCIDRs) != 1 {
		t.Errorf("others have changed: %v, before %v", got, nodes)
	}
	if ranges := rangesOf(got[1]); !slices.Equal(ranges, nodes[1].PodCIDRs) {
		t.Errorf("ranges of node b are %v, want %v", ranges, nodes[1].PodCIDRs)
	}
}

// A kubelet that appends the address of another node's pod to its Node gets no traffic for it, and a claim takes no additional address
// from a node. A first address stays the node's.
func TestPoolAddressesOfNodes(t *testing.T) {
	addr := netip.MustParseAddr
	nodes := []cluster.Node{
		{Name: "a", Addresses: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.11")}},
		{Name: "b", Addresses: []netip.Addr{addr("192.0.2.2")}},
		{Name: "thief", Addresses: []netip.Addr{addr("192.0.2.3"), addr("2001:db8::3"), addr("192.0.2.100"), addr("2001:db8::100")}},
	}
	got := WithPoolAddresses(nodes, "a", map[string][]netip.Addr{
		"b": {addr("192.0.2.100"), addr("2001:db8::100"), addr("192.0.2.3"), addr("192.0.2.11"), addr("192.0.2.101")},
	})
	for i, want := range []string{"[192.0.2.1 192.0.2.11] []", "[192.0.2.2] [192.0.2.101/32]", "[192.0.2.3 2001:db8::3] []"} {
		if is := fmt.Sprint(got[i].Addresses, got[i].PodCIDRs); is != want {
			t.Errorf("node %s has %s, want %s", got[i].Name, is, want)
		}
	}
	if len(nodes[2].Addresses) != 4 {
		t.Errorf("the nodes were changed: %+v", nodes)
	}
}

func TestPoolUplink(t *testing.T) {
	prefix := netip.MustParsePrefix
	uplinks := []netdev.Uplink{
		{Name: "eth0", Index: 1, Addresses: []netip.Prefix{prefix("192.0.2.1/24")}},
		{Name: "eth1", Index: 2, Addresses: []netip.Prefix{prefix("198.51.100.1/24")}},
	}
	pools := []*cluster.IPPool{
		{Name: "subnet", Subnets: []netip.Prefix{prefix("198.51.100.0/25")}},
		{Name: "named", Uplink: "eth1"},
		{Name: "address", Uplink: "198.51.100.1"},
		{Name: "elsewhere", Subnets: []netip.Prefix{prefix("203.0.113.0/24")}},
		{Name: "missing", Uplink: "eth7"},
	}
	for name, want := range map[string]int{"subnet": 2, "named": 2, "address": 2, "elsewhere": 1, "deleted": 1, "missing": 0} {
		got, err := PoolUplink(pools, uplinks, nil, name)
		if (err == nil) != (want != 0) || err == nil && got.Index != want {
			t.Errorf("pool %s: uplink %d, %v, want %d", name, got.Index, err, want)
		}
	}
	if _, err := PoolUplink(pools, nil, nil, "subnet"); err == nil {
		t.Error("a pool has an uplink on a node without any")
	}
}

// A pod with an address of an IPPool is local, not masqueraded, and the node answers for it.
func TestDesiredPoolEndpoint(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	uplink := netdev.Uplink{Name: "eth0", Index: 7, MTU: 1500, Addresses: []netip.Prefix{prefix("192.0.2.1/24")}}
	facts := Facts{
		Config: Config{NodeName: "a"}, Uplink: &uplink,
		Snapshot:  &cluster.Snapshot{Nodes: []cluster.Node{{Name: "a", PodCIDRs: []netip.Prefix{prefix("10.1.0.0/24")}}}},
		Endpoints: []agentapi.Endpoint{{Pool: "office", HostIfIndex: 9, Addresses: []netip.Addr{addr("192.0.2.100")}}},
		IPPools:   []*cluster.IPPool{{Name: "office", Subnets: []netip.Prefix{prefix("192.0.2.0/24")}}},
	}
	d := Desire(facts)
	if r := d.Routes[prefix("192.0.2.100/32")]; r.Kind != fwd.RouteLocal {
		t.Errorf("route %+v", r)
	}
	if e := d.Endpoints[addr("192.0.2.100")]; !e.Underlay {
		t.Errorf("endpoint %+v", e)
	}
	if got := d.Proxies[7]; len(d.Proxies) != 1 || !slices.Equal(got, []netip.Addr{addr("192.0.2.100")}) {
		t.Errorf("answers for %v", d.Proxies)
	}
	if len(d.Pods) != 0 {
		t.Errorf("problems of pods: %v", d.Pods)
	}
	facts.IPPools[0].Uplink = "eth7"
	if d := Desire(facts); len(d.Pods) != 1 || len(d.Proxies) != 0 {
		t.Errorf("without the pool's uplink: problems %v, answers for %v", d.Pods, d.Proxies)
	}
}

// After a pool was deleted, the node answers for its pods on the device where it did, also if that is a VLAN's.
func TestAnswersOfDeletedPools(t *testing.T) {
	addr := netip.MustParseAddr
	first, second, seven := netdev.Uplink{Name: "eth0", Index: 7}, netdev.Uplink{Name: "eth1", Index: 8}, netdev.Uplink{Name: "eth0.7", Index: 9}
	endpoints := []agentapi.Endpoint{
		{Pool: "gone", Addresses: []netip.Addr{addr("192.0.2.100"), addr("2001:db8::100")}}, {Pool: "gone", Addresses: []netip.Addr{addr("192.0.2.101")}},
		{Pool: "office", Addresses: []netip.Addr{addr("192.0.2.102")}}, {Pool: "gone", Addresses: []netip.Addr{addr("192.0.2.103")}, Macvlan: &agentapi.Macvlan{}},
		{Addresses: []netip.Addr{addr("10.1.0.5")}},
	}
	pools := []*cluster.IPPool{{Name: "office", Uplink: "eth1"}}
	if got := OfDeletedPools(endpoints, pools); !slices.Equal(got, []netip.Addr{addr("192.0.2.100"), addr("2001:db8::100"), addr("192.0.2.101")}) {
		t.Errorf("addresses of deleted pools: %v", got)
	}
	d := Desire(Facts{
		Config: Config{NodeName: "a"}, Uplink: &first, Uplinks: []netdev.Uplink{second, seven}, Endpoints: endpoints, IPPools: pools,
		Snapshot: &cluster.Snapshot{Nodes: []cluster.Node{{Name: "a"}}},
		Answers:  map[netip.Addr]int{addr("192.0.2.100"): 9, addr("2001:db8::100"): 8, addr("192.0.2.101"): 77},
	})
	want := map[int][]netip.Addr{9: {addr("192.0.2.100")}, 8: {addr("2001:db8::100"), addr("192.0.2.102")}, 7: {addr("192.0.2.101")}}
	if fmt.Sprint(d.Proxies) != fmt.Sprint(want) {
		t.Errorf("answers %v, want %v", d.Proxies, want)
	}
	devices := []vlan.Device{{Name: "eth0.7", Index: 9}, {Name: "eth0.8", Index: 10}, {Name: "eth0.9", Index: 11}}
	answers := map[netip.Addr]int{addr("192.0.2.100"): 9, addr("192.0.2.101"): 9, addr("192.0.2.102"): 11}
	if got := Answering(devices, answers, []netdev.Uplink{first, {Index: 11}}); len(got) != 1 || got[0].Index != 9 {
		t.Errorf("devices besides the uplinks: %v", got)
	}
}
