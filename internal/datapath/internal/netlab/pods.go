package netlab

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// Carries checks that TCP (a megabyte each way, byte for byte), UDP and ICMP get from one pod to another.
func Carries(t *testing.T, from, to Netns, src, dst netip.Addr) {
	t.Helper()
	to.ServeTCP(t, dst)
	to.ServeUDP(t, dst)
	if err := EchoTCP(from.Dial(t, "tcp", dst), 1<<20); err != nil {
		t.Errorf("TCP: %v", err)
	}
	udp := from.Dial(t, "udp", dst)
	for _, n := range []int{1, 1000, 1452, 4000} { // the last one comes in fragments
		if err := EchoUDP(udp, n); err != nil {
			t.Errorf("UDP, %d bytes: %v", n, err)
		}
	}
	if err := from.Ping(t, src, dst); err != nil {
		t.Errorf("ICMP: %v", err)
	}
}

// CarriesPods checks both paths in both families.
func (n *Network) CarriesPods(t *testing.T) {
	t.Helper()
	for _, family := range fixtures.Families {
		t.Run(fmt.Sprintf("IPv%d to a pod on another node", family), func(t *testing.T) {
			Carries(t, n.A1.Netns, n.B1.Netns, n.A1.Addr(family), n.B1.Addr(family))
		})
		t.Run(fmt.Sprintf("IPv%d to a pod here", family), func(t *testing.T) {
			Carries(t, n.A1.Netns, n.A2.Netns, n.A1.Addr(family), n.A2.Addr(family))
		})
	}
}

// DropsNothing fails for every drop counter of either node that is not zero.
func (n *Network) DropsNothing(t *testing.T) {
	t.Helper()
	for _, node := range []*Node{n.A, n.B} {
		if d := node.Dropped(t); len(d) > 0 {
			t.Errorf("node %s dropped %v", node.V4, d)
		}
	}
}

// Forwarded counts what the stacks of both nodes have forwarded.
func (n *Network) Forwarded(t *testing.T) uint64 {
	t.Helper()
	return n.A.Forwarded(t) + n.B.Forwarded(t)
}

// AwaitDropped waits until the counters of a node are want: nothing less and nothing else.
func (n *Network) AwaitDropped(t *testing.T, node *Node, want map[string]uint64) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		got := node.Dropped(t)
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("node %s dropped %v, expected %v", node.V4, got, want)
		}
		time.Sleep(time.Millisecond)
	}
}
