package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDefaultsAreValid(t *testing.T) {
	if err := (Options{}).Defaults().Validate(); err != nil {
		t.Error(err)
	}
}

func TestDefaultsKeepWhatWasChosen(t *testing.T) {
	o := Options{Nodes: 3, Kubernetes: "1.35.4", Network: NetworkNone, Topology: TopologyRouted, Family: FamilyDual, Proxy: ProxyNFTables, Pools: PoolsMixed, Note: "x"}
	if d := cmp.Diff(o, o.Defaults()); d != "" {
		t.Error(d)
	}
}

// Only a network that implements Services has no kube-proxy by default.
func TestProxyOfEachNetwork(t *testing.T) {
	for network, want := range map[string]string{"": ProxyNone, NetworkBeeline: ProxyNone, NetworkBridge: ProxyIPTables, NetworkNone: ProxyIPTables} {
		if got := (Options{Network: network}).Defaults().Proxy; got != want {
			t.Errorf("network %q: proxy %q, want %q", network, got, want)
		}
	}
	if err := (Options{Network: NetworkBridge, Proxy: ProxyNone}).Defaults().Validate(); err == nil {
		t.Error("a bridge without kube-proxy is accepted")
	}
}

func TestValidateNamesEverythingWrong(t *testing.T) {
	err := Options{Nodes: 10, Kubernetes: "v1.36", Network: "a", Topology: "b", Family: "c", Proxy: "d", Pools: "e"}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"10 nodes", `"v1.36"`, `network "a"`, `topology "b"`, `family "c"`, `proxy "d"`, `pools "e"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in: %v", want, err)
		}
	}
}

// TestAddressesAreUnique checks the largest cluster of each kind.
func TestAddressesAreUnique(t *testing.T) {
	for _, o := range []Options{
		{Topology: TopologyFlat, Family: FamilyIPv4}, {Topology: TopologyFlat, Family: FamilyIPv6}, {Topology: TopologyFlat, Family: FamilyDual},
		{Topology: TopologyRouted, Family: FamilyIPv4}, {Topology: TopologyRouted, Family: FamilyIPv6}, {Topology: TopologyRouted, Family: FamilyDual},
	} {
		o.Nodes = MaxNodes
		c := New(o.Defaults())
		seen, each := map[netip.Addr]string{}, len(c.families("", ""))
		for _, m := range c.Machines() {
			for _, a := range m.Addresses() {
				if other := seen[a]; other != "" {
					t.Errorf("%s, %s: %s belongs to %s and %s", o.Topology, o.Family, a, other, m.Name)
				}
				seen[a] = m.Name
			}
		}
		if len(seen) != each*(MaxNodes+1) {
			t.Errorf("%s, %s: %d addresses", o.Topology, o.Family, len(seen))
		}
	}
}

func TestRoutedNodesAreOnTwoLinks(t *testing.T) {
	c := New(Options{Nodes: 3, Topology: TopologyRouted}.Defaults())
	var links []int
	for _, m := range c.Machines() {
		links = append(links, m.Link)
	}
	if !slices.Equal(links, []int{0, 1, 2, 1}) {
		t.Errorf("links %v", links)
	}
}

func TestNode(t *testing.T) {
	c := New(Options{}.Defaults())
	if n, err := c.Node("n2"); err != nil || n.Name != "n2" {
		t.Errorf("%v, %v", n, err)
	}
	for _, name := range []string{"n3", "cp", ""} {
		if _, err := c.Node(name); err == nil {
			t.Errorf("%q counts as a node", name)
		}
	}
}

func TestRangesOfFamilies(t *testing.T) {
	for family, want := range map[string]string{
		FamilyIPv4: "10.244.0.0/16 10.96.0.0/16 [10.96.0.1] 10.96.0.10 https://192.168.60.1:6443",
		FamilyIPv6: "fd00:244::/48 fd00:96::/112 [fd00:96::1] fd00:96::a https://[fd00:60::1]:6443",
		FamilyDual: "10.244.0.0/16,fd00:244::/48 10.96.0.0/16,fd00:96::/112 [10.96.0.1 fd00:96::1] 10.96.0.10 https://192.168.60.1:6443",
	} {
		c := New(Options{Family: family}.Defaults())
		got := fmt.Sprintf("%s %s %s %s %s", c.PodRanges(), c.ServiceRanges(), c.APIServiceIPs(), c.DNSServiceIP(), c.APIServer())
		if got != want {
			t.Errorf("%s: %s, want %s", family, got, want)
		}
	}
}
