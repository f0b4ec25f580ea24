package route

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
)

// Every packet with the device as egress device finds a route by it, and no other packet. The kernel is not written to again.
func TestSyncThrough(t *testing.T) {
	node := devicetest.NewNode(t)
	devicetest.Inside(t, node, func() error {
		index, err := devicetest.IndexOf("wire")
		if err != nil {
			return err
		}
		if err := SyncThrough(index, "wire"); err != nil {
			return err
		}
		changes, done := make(chan netlink.RouteUpdate, 10), make(chan struct{})
		defer close(done)
		if err := netlink.RouteSubscribe(changes, done); err != nil {
			return err
		}
		if err := SyncThrough(index, "wire"); err != nil {
			return err
		}
		for _, to := range []string{"203.0.113.9", "2001:db8:9::9"} {
			if got := egressOf(t, to, "wire"); got != index {
				t.Errorf("packets to %s by the device leave by %d, want %d", to, got, index)
			}
			if got := egressOf(t, to, ""); got == index {
				t.Errorf("other packets to %s leave by the device", to)
			}
		}
		for deadline := time.After(100 * time.Millisecond); deadline != nil; {
			select {
			case change := <-changes:
				if change.Table == throughTable { // the kernel may still be busy with the device's own addresses
					t.Errorf("the second time writes %v", change)
				}
			case <-deadline:
				deadline = nil
			}
		}
		if err := SyncThrough(0, "wire"); err != nil {
			return err
		}
		rules, err := ourRules()
		if len(rules) > 0 {
			t.Errorf("left are the rules %v", rules)
		}
		return err
	})
}

// egressOf is the device by which the kernel sends packets, 0 without a route.
func egressOf(t *testing.T, to, by string) int {
	t.Helper()
	routes, err := netlink.RouteGetWithOptions(net.ParseIP(to), &netlink.RouteGetOptions{Oif: by})
	if err != nil || len(routes) == 0 {
		return 0
	}
	return routes[0].LinkIndex
}
