package plan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// text formats batches as commands.
func text(batches []Batch) string {
	var b strings.Builder
	for _, batch := range batches {
		for _, command := range batch.Commands {
			if batch.Family != "" {
				command = batch.Family + " " + command
			}
			b.WriteString(batch.Netns + ": " + command + "\n")
		}
	}
	return b.String()
}

func check(t *testing.T, what string, batches []Batch, want string) {
	t.Helper()
	if d := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(text(batches))); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestWireFlat(t *testing.T) {
	c := New(Options{}.Defaults())
	check(t, "links", c.WireLinks(), `
wire: link add link0 type bridge
wire: link set link0 up`)
	check(t, "node", c.WireMachine(c.Nodes[0]), `
wire: link add w-n1 type veth peer name eth0 address 02:00:c0:a8:3c:0b netns blk-n1
wire: link set w-n1 master link0 up
n1: link set lo up
n1: address add 192.168.60.11/24 dev eth0
n1: link set eth0 up
n1: route add default via 192.168.60.1`)
	check(t, "control plane, the gateway of all machines", c.WireMachine(c.ControlPlane), `
wire: link add w-cp type veth peer name eth0 address 02:00:c0:a8:3c:01 netns blk-cp
wire: link set w-cp master link0 up
cp: link set lo up
cp: address add 192.168.60.1/24 dev eth0
cp: link set eth0 up`)
}

func TestWireRoutedDual(t *testing.T) {
	c := New(Options{Topology: TopologyRouted, Family: FamilyDual}.Defaults())
	links := text(c.WireLinks())
	for _, want := range []string{
		"wire: link add link2 type bridge\n",
		"wire: link add r-eth2 type veth peer name eth2 address 02:00:c0:a8:3e:fe netns blk-router\n",
		"router: address add 192.168.62.254/24 dev eth2\n",
		"router: address add fd00:60:2::254/64 dev eth2 nodad\n",
		"router: -6 rule add iif eth0 lookup 100\n",
	} {
		if !strings.Contains(links, want) {
			t.Errorf("no %q in:\n%s", want, links)
		}
	}
	check(t, "node on the second link", c.WireMachine(c.Nodes[1])[1:], `
n2: link set lo up
n2: address add 192.168.62.12/24 dev eth0
n2: address add fd00:60:2::12/64 dev eth0 nodad
n2: link set eth0 up
n2: route add default via 192.168.62.254
n2: route add default via fd00:60:2::254`)
	check(t, "control plane", c.WireMachine(c.ControlPlane)[1:], `
cp: link set lo up
cp: address add 192.168.60.1/24 dev eth0
cp: address add fd00:60::1/64 dev eth0 nodad
cp: link set eth0 up
cp: route add default via 192.168.60.254
cp: route add default via fd00:60::254`)
}

func TestWireIPv6(t *testing.T) {
	c := New(Options{Family: FamilyIPv6}.Defaults())
	check(t, "node", c.WireMachine(c.Nodes[0]), `
wire: link add w-n1 type veth peer name eth0 address 02:00:c0:a8:3c:0b netns blk-n1
wire: link set w-n1 master link0 up
n1: link set lo up
n1: address add fd00:60::11/64 dev eth0 nodad
n1: link set eth0 up
n1: route add default via fd00:60::1`)
	check(t, "control plane, the gateway of all machines", c.WireMachine(c.ControlPlane)[1:], `
cp: link set lo up
cp: address add fd00:60::1/64 dev eth0 nodad
cp: link set eth0 up`)
	routed := text(New(Options{Topology: TopologyRouted, Family: FamilyIPv6}.Defaults()).WireLinks())
	if strings.Contains(routed, "192.168.") || strings.Contains(routed, "router: -4 rule") || !strings.Contains(routed, "router: -6 rule add iif eth0 lookup 100\n") {
		t.Errorf("links:\n%s", routed)
	}
}

var podRange = []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}

func TestPodRoutesOfBeeline(t *testing.T) {
	flat := New(Options{}.Defaults())
	check(t, "flat: nodes have routes of their own", flat.PodRoutes(flat.Nodes[1], podRange), `
cp: route replace 10.244.1.0/24 via 192.168.60.12`)
	routed := New(Options{Topology: TopologyRouted}.Defaults())
	check(t, "routed: the router forwards for the control plane only", routed.PodRoutes(routed.Nodes[1], podRange), `
cp: route replace 10.244.1.0/24 via 192.168.60.254
router: route replace 10.244.1.0/24 via 192.168.62.12 table 100`)
}

func TestPodRoutesOfBridge(t *testing.T) {
	c := New(Options{Topology: TopologyRouted, Network: NetworkBridge, Nodes: 3, Family: FamilyDual}.Defaults())
	ranges := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:244::/64")}
	check(t, "every machine but the node itself", c.PodRoutes(c.Nodes[0], ranges), `
cp: route replace 10.244.0.0/24 via 192.168.60.254
cp: route replace fd00:244::/64 via fd00:60::254
n2: route replace 10.244.0.0/24 via 192.168.62.254
n2: route replace fd00:244::/64 via fd00:60:2::254
n3: route replace 10.244.0.0/24 via 192.168.61.11
n3: route replace fd00:244::/64 via fd00:60:1::11
router: route replace 10.244.0.0/24 via 192.168.61.11 table 100
router: route replace 10.244.0.0/24 via 192.168.61.11
router: route replace fd00:244::/64 via fd00:60:1::11 table 100
router: route replace fd00:244::/64 via fd00:60:1::11`)
}

// TestBatchesHaveNoOptions checks that batches have no options, which ip rejects in a batch.
func TestBatchesHaveNoOptions(t *testing.T) {
	ranges := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:244::/64")}
	for _, topology := range Topologies {
		c := New(Options{Topology: topology, Family: FamilyDual, Network: NetworkBridge}.Defaults())
		batches := append(c.WireLinks(), c.PodRoutes(c.Nodes[0], ranges)...)
		for _, m := range c.Machines() {
			batches = append(append(batches, c.WireMachine(m)...), c.UnplugMachine(m))
		}
		for _, b := range batches {
			for _, command := range b.Commands {
				if strings.HasPrefix(command, "-") {
					t.Errorf("%s: %s", topology, command)
				}
			}
		}
	}
}

// TestNamesFitTheKernel checks that device names have at most 15 characters.
func TestNamesFitTheKernel(t *testing.T) {
	c := New(Options{Topology: TopologyRouted, Nodes: MaxNodes}.Defaults())
	batches := c.WireLinks()
	for _, m := range c.Machines() {
		batches = append(batches, c.WireMachine(m)...)
	}
	for _, b := range batches {
		for _, command := range b.Commands {
			words := strings.Fields(command)
			if words[0] == "link" && words[1] == "add" && len(words[2]) > 15 {
				t.Errorf("%s", command)
			}
		}
	}
}
