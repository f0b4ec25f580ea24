package device

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// To an address that is closed the stack forwards nothing, the node itself reaches it, and all others are as before. Rules for tunnels, and
// those of others, stay.
func TestSyncClosed(t *testing.T) {
	closed4, closed6 := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("fd00:1::2")
	open4, open6 := netip.MustParseAddr("10.1.1.3"), netip.MustParseAddr("fd00:1::3")
	inside(t, newNamespace(t), func() error {
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
			if changed, err := SyncClosed(step.closed); err != nil || changed != step.changed {
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
