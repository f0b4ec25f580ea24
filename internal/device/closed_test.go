package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// To an address that is closed the stack forwards nothing, the node itself reaches it, and all others are as before. Rules for tunnels, and
// those of others, stay.
func TestSyncClosedAddresses(t *testing.T) {
	closed4, closed6 := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("fd00:1::2")
	open4, open6 := netip.MustParseAddr("10.1.1.3"), netip.MustParseAddr("fd00:1::3")
	inside(t, testenv.NewNetns(t), func() error {
		if err := errors.Join(addVeth("in", "in-peer"), addVeth("pod", "pod-peer"), addAddress("in", "192.0.2.1/24"), addAddress("in", "2001:db8::1/64"),
			os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)); err != nil {
			return err
		}
		pod, err := indexOf("pod")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{closed4, closed6, open4, open6} {
			if err := AddRoute(Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: pod}); err != nil {
				return err
			}
		}
		foreign := netlink.NewRule()
		foreign.Src, foreign.Table, foreign.Priority = ipNetOf(pod4), 77, 77
		if err := netlink.RuleAdd(foreign); err != nil {
			return err
		}
		if _, err := SyncRules([]netip.Prefix{pod4, pod6}); err != nil {
			return err
		}
		expect := func(step string, to netip.Addr, forwarded bool) {
			t.Helper()
			from := netip.MustParseAddr("192.0.2.9")
			if to.Is6() {
				from = netip.MustParseAddr("2001:db8::9")
			}
			_, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Iif: "in", SrcAddr: from.AsSlice()})
			if forwarded && err != nil || !forwarded && !errors.Is(err, unix.EINVAL) { // which is what nobody is told of
				t.Errorf("%s: what comes for %s, with forwarding wanted %t: %v", step, to, forwarded, err)
			}
			routes, err := netlink.RouteGet(to.AsSlice())
			if err != nil || len(routes) != 1 || routes[0].LinkIndex != pod {
				t.Errorf("%s: what the node sends to %s goes by %v (%v)", step, to, routes, err)
			}
		}
		for _, step := range []struct {
			what    string
			closed  []netip.Addr
			changed int
		}{
			{"closed", []netip.Addr{closed4, closed6}, 4}, {"again", []netip.Addr{closed4, closed6}, 0}, {"one of them", []netip.Addr{closed6}, 2}, {"open", nil, 2},
		} {
			if changed, err := SyncClosed(Closed{To: step.closed}, false); err != nil || changed != step.changed {
				t.Errorf("%s: %d changed, want %d (error %v)", step.what, changed, step.changed, err)
			}
			if changed, err := SyncRules([]netip.Prefix{pod4, pod6}); err != nil || changed != 0 {
				t.Errorf("%s: %d rules for tunnels changed (error %v)", step.what, changed, err)
			}
			for i, a := range []netip.Addr{closed4, closed6} {
				expect(step.what, a, len(step.closed) <= 1-i)
			}
			expect(step.what, open4, true)
			expect(step.what, open6, true)
		}
		left, err := netlink.RuleListFiltered(unix.AF_INET, foreign, netlink.RT_FILTER_TABLE)
		if err != nil || len(left) != 1 {
			t.Errorf("of somebody else's rule there is %v (%v)", left, err)
		}
		return nil
	})
}

// From a device that is closed the stack forwards nothing, whatever its source says. The node is reached from there and reaches it, and
// others go on. What is closed stays so while it is asked to be kept, and the rules of a device that is gone go, too.
func TestSyncClosedDevices(t *testing.T) {
	own4, own6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	world4, world6 := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:7::7")
	inside(t, testenv.NewNetns(t), func() error {
		if err := errors.Join(addVeth("up", "up-peer"), addVeth("bl1", "bl1-peer"), addVeth("bl2", "bl2-peer"), addAddress("up", "192.0.2.1/24"), addAddress("up", "2001:db8::1/64"),
			os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)); err != nil {
			return err
		}
		if err := eventually(func() error { // an IPv6 address is the node's when no other node has it
			routes, err := netlink.RouteGet(own6.AsSlice())
			if err == nil && routes[0].Type != unix.RTN_LOCAL {
				err = fmt.Errorf("%s is not the node's: %v", own6, routes)
			}
			return err
		}); err != nil {
			return err
		}
		up, err := indexOf("up")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{world4, world6} {
			if err := AddRoute(Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: up}); err != nil {
				return err
			}
		}
		for name, address := range map[string]string{"bl1": "10.1.1.2/32", "bl2": "10.1.1.3/32"} {
			index, err := indexOf(name)
			if err != nil {
				return err
			}
			if err := AddRoute(Route{Prefix: netip.MustParsePrefix(address), Device: index}); err != nil {
				return err
			}
		}
		asks := func(from string, source string, to netip.Addr) error {
			_, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Iif: from, SrcAddr: net.ParseIP(source)})
			return err
		}
		expect := func(step, from string, forwarded bool) {
			t.Helper()
			for _, to := range []netip.Addr{world4, world6} {
				for _, source := range map[bool][]string{true: {"10.1.1.2", "10.1.1.77"}, false: {"fd00:1::2", "fd00:1::77"}}[to.Is4()] {
					if err := asks(from, source, to); forwarded && err != nil || !forwarded && !errors.Is(err, unix.EINVAL) { // which is what nobody is told of
						t.Errorf("%s: what %s sends to %s as %s, with forwarding wanted %t: %v", step, from, to, source, forwarded, err)
					}
				}
			}
			if err := errors.Join(asks(from, "10.1.1.2", own4), asks(from, "fd00:1::2", own6)); err != nil {
				t.Errorf("%s: what %s sends to the node: %v", step, from, err)
			}
			if _, err := netlink.RouteGet(net.ParseIP("10.1.1.2")); err != nil {
				t.Errorf("%s: what the node sends: %v", step, err)
			}
		}
		both := Closed{To: []netip.Addr{netip.MustParseAddr("10.1.1.3")}, From: []string{"bl1"}}
		for _, step := range []struct {
			what    string
			closed  Closed
			keep    bool
			changed int
			open    bool
		}{
			{"closed", both, false, 4, false}, {"again", both, false, 0, false}, {"kept", Closed{}, true, 0, false},
			{"another one beside", Closed{From: []string{"bl7"}}, true, 2, false}, {"the first one alone", Closed{From: []string{"bl1"}}, false, 4, false}, {"open", Closed{}, false, 2, true},
		} {
			if changed, err := SyncClosed(step.closed, step.keep); err != nil || changed != step.changed {
				t.Errorf("%s: %d changed, want %d (error %v)", step.what, changed, step.changed, err)
			}
			expect(step.what, "bl1", step.open)
			expect(step.what, "bl2", true)
		}

		if _, err := SyncClosed(both, false); err != nil {
			return err
		}
		link, err := netlink.LinkByName("bl1")
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(link); err != nil {
			return err
		}
		if changed, err := SyncClosed(Closed{}, false); err != nil || changed != 4 {
			t.Errorf("without the device: %d changed, want 4 (error %v)", changed, err)
		}
		left, err := ourRules()
		if err != nil || len(left) > 0 {
			t.Errorf("left are %v (%v)", left, err)
		}
		return nil
	})
}
