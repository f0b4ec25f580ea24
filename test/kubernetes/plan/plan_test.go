package plan

import (
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
	o := Options{Nodes: 3, Kubernetes: "1.35.4", Network: "none", Topology: "routed", Family: "dual", Proxy: "nftables", Note: "x"}
	if d := cmp.Diff(o, o.Defaults()); d != "" {
		t.Error(d)
	}
}

// Only a network that takes care of Services goes without kube-proxy.
func TestProxyOfEachNetwork(t *testing.T) {
	for network, want := range map[string]string{"": ProxyNone, "beeline": ProxyNone, "bridge": "iptables", "none": "iptables"} {
		if got := (Options{Network: network}).Defaults().Proxy; got != want {
			t.Errorf("network %q: proxy %q, want %q", network, got, want)
		}
	}
	if err := (Options{Network: "bridge", Proxy: ProxyNone}).Defaults().Validate(); err == nil {
		t.Error("a bridge without kube-proxy is accepted")
	}
}

func TestValidateNamesEverythingWrong(t *testing.T) {
	err := Options{Nodes: 10, Kubernetes: "v1.36", Network: "a", Topology: "b", Family: "c", Proxy: "d"}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"10 nodes", `"v1.36"`, `network "a"`, `topology "b"`, `family "c"`, `proxy "d"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in: %v", want, err)
		}
	}
}

// TestAddressesAreUnique checks the largest cluster of each kind.
func TestAddressesAreUnique(t *testing.T) {
	for _, topology := range Topologies {
		c := New(Options{Nodes: MaxNodes, Topology: topology, Family: "dual"}.Defaults())
		seen := map[netip.Addr]string{}
		for _, m := range c.Machines() {
			for _, a := range m.Addresses() {
				if other := seen[a]; other != "" {
					t.Errorf("%s: %s is of %s and %s", topology, a, other, m.Name)
				}
				seen[a] = m.Name
			}
		}
		if len(seen) != 2*(MaxNodes+1) {
			t.Errorf("%s: %d addresses", topology, len(seen))
		}
	}
}

func TestRoutedNodesAreOnTwoLinks(t *testing.T) {
	c := New(Options{Nodes: 3, Topology: "routed"}.Defaults())
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
			t.Errorf("%q is taken for a node", name)
		}
	}
}

func TestRangesOfFamilies(t *testing.T) {
	if got := New(Options{}.Defaults()).PodRanges(); got != PodRange4 {
		t.Errorf("ipv4: %s", got)
	}
	dual := New(Options{Family: "dual"}.Defaults())
	if got := dual.PodRanges() + " " + dual.ServiceRanges(); got != "10.244.0.0/16,fd00:244::/48 10.96.0.0/16,fd00:96::/112" {
		t.Errorf("dual: %s", got)
	}
}
