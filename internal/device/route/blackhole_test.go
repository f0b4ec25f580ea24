package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// The kernel drops forwarded packets to the addresses only; the node itself reaches them. Rules for tunnels, and those of others, stay.
func TestBlackholesToAddresses(t *testing.T) {
	dropped4, dropped6 := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("fd00:1::2")
	open4, open6 := netip.MustParseAddr("10.1.1.3"), netip.MustParseAddr("fd00:1::3")
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		if err := errors.Join(devicetest.AddVeth("in", "in-peer"), devicetest.AddVeth("pod", "pod-peer"), devicetest.AddAddress("in", "192.0.2.1/24"), devicetest.AddAddress("in", "2001:db8::1/64"),
			os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)); err != nil {
			return err
		}
		pod, err := devicetest.IndexOf("pod")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{dropped4, dropped6, open4, open6} {
			if err := Add(Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: pod}); err != nil {
				return err
			}
		}
		foreign := netlink.NewRule()
		foreign.Src, foreign.Table, foreign.Priority = rtnl.IPNet(devicetest.Pod4), 77, 77
		if err := netlink.RuleAdd(foreign); err != nil {
			return err
		}
		if _, err := SyncTunnelRules([]netip.Prefix{devicetest.Pod4, devicetest.Pod6}); err != nil {
			return err
		}
		expect := func(step string, to netip.Addr, forwarded bool) {
			t.Helper()
			from := netip.MustParseAddr("192.0.2.9")
			if to.Is6() {
				from = netip.MustParseAddr("2001:db8::9")
			}
			_, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Iif: "in", SrcAddr: from.AsSlice()})
			if forwarded && err != nil || !forwarded && !errors.Is(err, unix.EINVAL) { // EINVAL: dropped without an ICMP error
				t.Errorf("%s: packets to %s, want forwarded %t: %v", step, to, forwarded, err)
			}
			routes, err := netlink.RouteGet(to.AsSlice())
			if err != nil || len(routes) != 1 || routes[0].LinkIndex != pod {
				t.Errorf("%s: the node's packets to %s take %v (%v)", step, to, routes, err)
			}
		}
		for _, step := range []struct {
			what    string
			closed  []netip.Addr
			changed int
		}{
			{"dropped", []netip.Addr{dropped4, dropped6}, 4}, {"again", []netip.Addr{dropped4, dropped6}, 0}, {"one of them", []netip.Addr{dropped6}, 2}, {"open", nil, 2},
		} {
			if changed, err := SyncBlackholes(Blackholes{To: step.closed}, false); err != nil || changed != step.changed {
				t.Errorf("%s: %d changed, want %d (error %v)", step.what, changed, step.changed, err)
			}
			if changed, err := SyncTunnelRules([]netip.Prefix{devicetest.Pod4, devicetest.Pod6}); err != nil || changed != 0 {
				t.Errorf("%s: %d rules for tunnels changed (error %v)", step.what, changed, err)
			}
			for i, a := range []netip.Addr{dropped4, dropped6} {
				expect(step.what, a, len(step.closed) <= 1-i)
			}
			expect(step.what, open4, true)
			expect(step.what, open6, true)
		}
		left, err := netlink.RuleListFiltered(unix.AF_INET, foreign, netlink.RT_FILTER_TABLE)
		if err != nil || len(left) != 1 {
			t.Errorf("the foreign rule is %v (%v)", left, err)
		}
		return nil
	})
}

// The kernel forwards nothing from the devices, whatever the source address; the node and they reach each other. With keep rules stay,
// and rules of a deleted device are deleted.
func TestBlackholesFromDevices(t *testing.T) {
	own4, own6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	external4, external6 := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:7::7")
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		if err := errors.Join(devicetest.AddVeth("up", "up-peer"), devicetest.AddVeth("bl1", "bl1-peer"), devicetest.AddVeth("bl2", "bl2-peer"), devicetest.AddAddress("up", "192.0.2.1/24"), devicetest.AddAddress("up", "2001:db8::1/64"),
			os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)); err != nil {
			return err
		}
		if err := devicetest.Eventually(func() error { // an IPv6 address is the node's when no other node has it
			routes, err := netlink.RouteGet(own6.AsSlice())
			if err == nil && routes[0].Type != unix.RTN_LOCAL {
				err = fmt.Errorf("%s is not local: %v", own6, routes)
			}
			return err
		}); err != nil {
			return err
		}
		up, err := devicetest.IndexOf("up")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{external4, external6} {
			if err := Add(Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: up}); err != nil {
				return err
			}
		}
		for name, address := range map[string]string{"bl1": "10.1.1.2/32", "bl2": "10.1.1.3/32"} {
			index, err := devicetest.IndexOf(name)
			if err != nil {
				return err
			}
			if err := Add(Route{Prefix: netip.MustParsePrefix(address), Device: index}); err != nil {
				return err
			}
		}
		lookup := func(from string, source string, to netip.Addr) error {
			_, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Iif: from, SrcAddr: net.ParseIP(source)})
			return err
		}
		expect := func(step, from string, forwarded bool) {
			t.Helper()
			for _, to := range []netip.Addr{external4, external6} {
				for _, source := range map[bool][]string{true: {"10.1.1.2", "10.1.1.77"}, false: {"fd00:1::2", "fd00:1::77"}}[to.Is4()] {
					if err := lookup(from, source, to); forwarded && err != nil || !forwarded && !errors.Is(err, unix.EINVAL) { // EINVAL: dropped without an ICMP error
						t.Errorf("%s: packets from %s to %s with source %s, want forwarded %t: %v", step, from, to, source, forwarded, err)
					}
				}
			}
			if err := errors.Join(lookup(from, "10.1.1.2", own4), lookup(from, "fd00:1::2", own6)); err != nil {
				t.Errorf("%s: packets from %s to the node: %v", step, from, err)
			}
			if _, err := netlink.RouteGet(net.ParseIP("10.1.1.2")); err != nil {
				t.Errorf("%s: the node's packets: %v", step, err)
			}
		}
		both := Blackholes{To: []netip.Addr{netip.MustParseAddr("10.1.1.3")}, From: []string{"bl1"}}
		for _, step := range []struct {
			what    string
			closed  Blackholes
			keep    bool
			changed int
			open    bool
		}{
			{"dropped", both, false, 4, false}, {"again", both, false, 0, false}, {"kept", Blackholes{}, true, 0, false},
			{"another one beside", Blackholes{From: []string{"bl7"}}, true, 2, false}, {"the first one alone", Blackholes{From: []string{"bl1"}}, false, 4, false}, {"open", Blackholes{}, false, 2, true},
		} {
			if changed, err := SyncBlackholes(step.closed, step.keep); err != nil || changed != step.changed {
				t.Errorf("%s: %d changed, want %d (error %v)", step.what, changed, step.changed, err)
			}
			expect(step.what, "bl1", step.open)
			expect(step.what, "bl2", true)
		}

		if _, err := SyncBlackholes(both, false); err != nil {
			return err
		}
		link, err := netlink.LinkByName("bl1")
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(link); err != nil {
			return err
		}
		if changed, err := SyncBlackholes(Blackholes{}, false); err != nil || changed != 4 {
			t.Errorf("without the device: %d changed, want 4 (error %v)", changed, err)
		}
		left, err := ourRules()
		if err != nil || len(left) > 0 {
			t.Errorf("rules left: %v (%v)", left, err)
		}
		return nil
	})
}
