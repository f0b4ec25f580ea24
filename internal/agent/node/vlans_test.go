package node

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/vlan"
)

// A pool with a VLAN has its device and never another one: its pods would be in another network.
func TestPoolUplinkOfVLAN(t *testing.T) {
	subnet := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	uplinks := []netdev.Uplink{{Name: "eth0", Index: 1, Addresses: subnet}}
	pools := []*cluster.IPPool{
		{Name: "office", Subnets: subnet, VLAN: 7}, {Name: "lab", Subnets: subnet, VLAN: 8, Uplink: "eth0"}, {Name: "other", Subnets: subnet, VLAN: 9},
	}
	vlans := VLANs{"office": {Uplink: netdev.Uplink{Name: "eth0.7", Index: 2}}, "lab": {Missing: errors.New("the reason")}}
	if u, err := PoolUplink(pools, uplinks, vlans, "office"); err != nil || u.Index != 2 {
		t.Errorf("office: %+v, %v", u, err)
	}
	if u, err := PoolUplink(pools, uplinks, vlans, "lab"); err == nil || !strings.Contains(err.Error(), "VLAN 8 of IPPool lab: the reason") {
		t.Errorf("lab: %+v, %v", u, err)
	}
	if u, err := PoolUplink(pools, uplinks, vlans, "other"); err == nil {
		t.Errorf("other: %+v", u)
	}
	if got := vlans.Problems(); len(got) != 1 || !strings.Contains(got[0], "IPPool lab") {
		t.Errorf("problems: %q", got)
	}
}

// Devices are each once, and not those that are uplinks already.
func TestVLANDevices(t *testing.T) {
	seven, eight := netdev.Uplink{Name: "eth0.7", Index: 7}, netdev.Uplink{Name: "eth0.8", Index: 8}
	vlans := VLANs{"a": {Uplink: eight}, "b": {Uplink: seven}, "c": {Uplink: eight}, "d": {Uplink: netdev.Uplink{Index: 9}, Missing: errors.New("down")}}
	index := func(all []netdev.Uplink) (got []int) {
		for _, u := range all {
			got = append(got, u.Index)
		}
		return got
	}
	if got := index(vlans.Devices(nil)); !slices.Equal(got, []int{7, 8}) {
		t.Errorf("devices %v", got)
	}
	if got := index(vlans.Devices([]netdev.Uplink{seven})); !slices.Equal(got, []int{8}) {
		t.Errorf("devices besides an uplink: %v", got)
	}
}

// A node makes devices for the pools that select it.
func TestVLANPools(t *testing.T) {
	in := &cluster.Selector{Requirements: []cluster.Requirement{{Key: "rack", Operator: "In", Values: []string{"1"}}}}
	pools := []*cluster.IPPool{{Name: "none"}, {Name: "all", VLAN: 7}, {Name: "rack", VLAN: 8, Nodes: in}}
	for labels, want := range map[string]int{"1": 2, "2": 1} {
		if got := VLANPools(pools, cluster.Node{Labels: cluster.NewLabels(map[string]string{"rack": labels})}); len(got) != want {
			t.Errorf("rack %s: %d pools, want %d", labels, len(got), want)
		}
	}
}

func TestUnusedVLANs(t *testing.T) {
	devices := []vlan.Device{{Name: "eth0.7", Index: 7, Own: true}, {Name: "eth0.8", Index: 8, Own: true}, {Name: "eth0.9", Index: 9, Own: true}, {Name: "office", Index: 10}}
	used := VLANs{"office": {Uplink: netdev.Uplink{Index: 7}}, "lab": {Missing: errors.New("down")}}
	pools := []*cluster.IPPool{{Name: "office", VLAN: 7}}
	onEight := agentapi.Endpoint{Pool: "gone", Macvlan: &agentapi.Macvlan{Parent: 8}}
	for name, test := range map[string]struct {
		endpoints []agentapi.Endpoint
		want      []string
	}{
		"no pods":                       {nil, []string{"eth0.8", "eth0.9"}},
		"a macvlan pod":                 {[]agentapi.Endpoint{onEight}, []string{"eth0.9"}},
		"a routed pod":                  {[]agentapi.Endpoint{{Pool: "office"}, {}}, []string{"eth0.8", "eth0.9"}},
		"a routed pod of a deleted one": {[]agentapi.Endpoint{{Pool: "gone"}}, nil},
	} {
		var got []string
		for _, d := range UnusedVLANs(devices, used, pools, test.endpoints) {
			got = append(got, d.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: unused %v, want %v", name, got, test.want)
		}
	}
}

func TestVLANBase(t *testing.T) {
	first := &netdev.Uplink{Name: "eth0", Index: 1}
	second := netdev.Uplink{Name: "eth1", Index: 2, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}
	find := func(name string, addresses []netip.Addr) (netdev.Uplink, error) {
		if name == "eth1" || name == "auto" { // as that of the default route, if none has the address
			return second, nil
		}
		return netdev.Uplink{}, netdev.ErrNoUplink
	}
	for uplink, want := range map[string]int{"": 1, "eth1": 2, "192.0.2.1": 2, "192.0.2.2": 0, "eth7": 0} {
		got, err := VLANBase(&cluster.IPPool{Uplink: uplink, VLAN: 7}, first, find)
		if (err == nil) != (want != 0) || err == nil && got.Index != want {
			t.Errorf("uplink %q: device %d, %v, want %d", uplink, got.Index, err, want)
		}
	}
	if _, err := VLANBase(&cluster.IPPool{VLAN: 7}, nil, find); !errors.Is(err, netdev.ErrNoUplink) {
		t.Errorf("a node without uplinks: %v", err)
	}
}
