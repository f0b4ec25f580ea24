package route

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestSyncTouchesOnlyOurs(t *testing.T) {
	node := devicetest.NewNode(t)
	devicetest.Inside(t, node, func() error {
		up, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		wire, err := devicetest.IndexOf("wire")
		if err != nil {
			return err
		}
		foreign := netlink.Route{Dst: rtnl.IPNet(netip.MustParsePrefix("10.9.0.0/24")), LinkIndex: up, Gw: net.IPv4(192, 0, 2, 9), Protocol: unix.RTPROT_STATIC}
		if err := netlink.RouteAdd(&foreign); err != nil {
			return err
		}
		via4, via6 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")
		node2 := Route{Prefix: netip.MustParsePrefix("10.2.0.0/24"), Via: via4, Device: up}
		node2v6 := Route{Prefix: netip.MustParsePrefix("fd00:2::/64"), Via: via6, Device: up}
		local := Route{Prefix: devicetest.Pod4, Device: wire}
		local6 := Route{Prefix: devicetest.Pod6, Device: wire}
		tuned := node2
		tuned.MTU, tuned.Source = 1400, netip.MustParseAddr("192.0.2.1")
		tuned6 := node2v6
		tuned6.MTU = 1400
		moved, moved6 := local, local6
		moved.Device = up
		moved6.Device, moved6.Via = up, via6

		unreachable := Route{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Unreachable: true}
		unreachable6 := Route{Prefix: netip.MustParsePrefix("fd00:1::/64"), Unreachable: true}

		steps := []struct {
			name    string
			desired []Route
			changed int
		}{
			{"first", []Route{node2, node2v6, local, local6}, 4},
			{"again", []Route{node2, node2v6, local, local6}, 0},
			{"other MTU, source and device", []Route{tuned, tuned6, moved, moved6}, 4},
			{"that again", []Route{tuned, tuned6, moved, moved6}, 0},
			{"one goes, one moves back", []Route{tuned, moved, local6}, 2},
			{"unreachable", []Route{tuned, moved, local6, unreachable, unreachable6}, 2},
			{"that again", []Route{tuned, moved, local6, unreachable, unreachable6}, 0},
			{"in place of others", []Route{tuned, moved, local6, {Prefix: unreachable.Prefix, Device: up}, {Prefix: unreachable6.Prefix, Device: up}}, 2},
			{"and back", []Route{tuned, moved, local6, unreachable, unreachable6}, 2},
			{"all go", nil, 5},
			{"none left", nil, 0},
		}
		for _, step := range steps {
			changed, err := Sync(step.desired)
			if err != nil || changed != step.changed {
				t.Errorf("%s: %d changed, want %d (error %v)", step.name, changed, step.changed, err)
			}
			routes, err := Read(0)
			if err != nil {
				return err
			}
			present := routes.ours()
			if len(present) != len(step.desired) {
				t.Errorf("%s: %v", step.name, present)
			}
			for _, want := range step.desired {
				if got := present[want.key()]; got == nil || got.normal() != want {
					t.Errorf("%s: the route is %+v, want %+v", step.name, got, want)
				}
			}
		}

		// A foreign route stays although another one is desired for its prefix; the other routes are set.
		want := Route{Prefix: netip.MustParsePrefix("10.9.0.0/24"), Via: via4, Device: up}
		changed, err := Sync([]Route{want, node2})
		if !errors.Is(err, ErrForeign) || changed != 1 {
			t.Errorf("%d changed, error %v; want 1 and ErrForeign", changed, err)
		}
		if err := Delete(want); err != nil {
			t.Errorf("delete a foreign route: %v", err)
		}
		routes, err := netlink.RouteListFiltered(unix.AF_INET, &foreign, netlink.RT_FILTER_DST)
		if err != nil {
			return err
		}
		if len(routes) != 1 || !routes[0].Gw.Equal(foreign.Gw) || routes[0].Protocol != unix.RTPROT_STATIC {
			t.Errorf("the foreign route is now %v", routes)
		}
		return nil
	})
}

func TestRouteOfDeletedDevice(t *testing.T) {
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		route := Route{Prefix: devicetest.Pod4, Device: 4711}
		if err := Add(route); err == nil {
			t.Error("no error")
		}
		return Delete(route)
	})
}

func TestSyncRejectsTwoForOnePrefix(t *testing.T) {
	node := devicetest.NewNode(t)
	devicetest.Inside(t, node, func() error {
		up, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		changed, err := Sync([]Route{{Prefix: devicetest.Pod4, Device: up}, {Prefix: devicetest.Pod4, Device: up, MTU: 1300}})
		if err == nil || changed != 1 {
			t.Errorf("%d changed, error %v", changed, err)
		}
		return nil
	})
}
