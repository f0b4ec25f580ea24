package route

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// sourcesNode has two uplinks, a default route and a cluster's route by the first, and a pod's device. It returns the indexes.
func sourcesNode() (up, second, pod int, err error) {
	err = errors.Join(
		devicetest.AddVeth("up", "up-peer"), devicetest.AddVeth("second", "second-peer"), devicetest.AddVeth("pod", "pod-peer"),
		devicetest.AddAddress("up", "192.0.2.1/24"), devicetest.AddAddress("up", "2001:db8::1/64"),
		devicetest.AddAddress("second", "198.51.100.1/24"), devicetest.AddAddress("second", "2001:db8:1::1/64"),
		os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0),
	)
	if err != nil {
		return 0, 0, 0, err
	}
	for name, index := range map[string]*int{"up": &up, "second": &second, "pod": &pod} {
		if *index, err = devicetest.IndexOf(name); err != nil {
			return 0, 0, 0, err
		}
	}
	if err = devicetest.Eventually(func() error { // an IPv6 address is the node's when no other node has it
		for _, own := range []string{"2001:db8::1", "2001:db8:1::1"} {
			routes, err := netlink.RouteGet(netip.MustParseAddr(own).AsSlice())
			if err != nil || routes[0].Type != unix.RTN_LOCAL {
				return fmt.Errorf("%s is not local: %v, %w", own, routes, err)
			}
		}
		return nil
	}); err != nil {
		return 0, 0, 0, err
	}
	for _, via := range []string{"192.0.2.254", "2001:db8::fe"} {
		a := netip.MustParseAddr(via)
		err = errors.Join(err, netlink.RouteAdd(&netlink.Route{Gw: a.AsSlice(), LinkIndex: up, Dst: rtnl.IPNet(defaultLike(a))}))
	}
	return up, second, pod, err
}

func defaultLike(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// takes reports the device and the next hop of packets; from "" they are the node's own.
func takes(device string, source, to netip.Addr) (string, error) {
	o := &netlink.RouteGetOptions{Iif: device, SrcAddr: source.AsSlice()}
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), o)
	if err != nil {
		return "", err
	}
	name, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", err
	}
	if routes[0].Gw == nil {
		return name.Attrs().Name, nil
	}
	return name.Attrs().Name + " " + routes[0].Gw.String(), nil
}

// What a pod sends takes the routes of its Source in place of the node's default ones only. The node's own packets and those of other
// addresses do not, and rules and routes of others stay.
func TestSyncSources(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		up, second, pod, err := sourcesNode()
		if err != nil {
			return err
		}
		cluster := []Route{
			{Prefix: prefix("10.2.0.0/24"), Via: addr("192.0.2.2"), Device: up}, {Prefix: prefix("fd00:2::/64"), Via: addr("2001:db8::2"), Device: up},
			{Prefix: prefix("198.51.100.100/32"), Device: pod}, {Prefix: prefix("2001:db8:1::100/128"), Device: pod},
			{Prefix: prefix("203.0.113.9/32"), Device: pod, Table: TunnelTable},
		}
		if _, err := Sync(cluster); err != nil {
			return err
		}
		foreign := netlink.NewRule()
		foreign.Src, foreign.Table, foreign.Priority = rtnl.IPNet(prefix("198.51.100.1/32")), 77, 300
		inOurs := netlink.Route{Dst: rtnl.IPNet(prefix("10.9.0.0/16")), LinkIndex: up, Table: sourceTableFirst, Protocol: unix.RTPROT_STATIC, Scope: netlink.SCOPE_LINK}
		if err := errors.Join(netlink.RuleAdd(foreign), netlink.RouteAdd(&inOurs)); err != nil {
			return err
		}
		pods := []netip.Addr{addr("198.51.100.100"), addr("2001:db8:1::100")}
		office := func(gateway4, gateway6 string) []Source {
			return []Source{{
				Within: []netip.Prefix{prefix("198.51.100.0/24"), prefix("2001:db8:1::/64")}, Addresses: pods,
				Routes: []Route{
					{Prefix: prefix("198.51.100.0/24"), Device: second}, {Prefix: prefix("2001:db8:1::/64"), Device: second},
					{Prefix: prefix("0.0.0.0/0"), Via: addr(gateway4), Device: second}, {Prefix: prefix("::/0"), Via: addr(gateway6), Device: second},
					{Prefix: prefix("10.0.0.0/8"), Via: addr("198.51.100.7"), Device: second},
				},
			}}
		}
		sync := func(step string, want []Source, tunnels bool, changes int) {
			t.Helper()
			present, err := Read(0)
			if err != nil {
				t.Fatal(err)
			}
			if _, changed, err := SyncSources(want, tunnels, present); err != nil || changed != changes {
				t.Errorf("%s: %d changed, want %d (error %v)", step, changed, changes, err)
			}
			for what, others := range map[string]func() (int, error){
				"routes": func() (int, error) { return Sync(cluster) }, "tunnels": func() (int, error) { return SyncTunnelRules(nil) },
				"blackholes": func() (int, error) { return SyncBlackholes(Blackholes{}, false) },
			} {
				if changed, err := others(); err != nil || changed != 0 {
					t.Errorf("%s: %d %s changed (error %v)", step, changed, what, err)
				}
			}
		}
		expect := func(step, device, source, to, want string) {
			t.Helper()
			if got, err := takes(device, addr(source), addr(to)); err != nil || got != want {
				t.Errorf("%s: from %q %s to %s: %s, %v; want %s", step, device, source, to, got, err, want)
			}
		}
		pod4, pod6, far4, far6 := "198.51.100.100", "2001:db8:1::100", "203.0.113.9", "2001:db8:9::9"
		node := func(step string) {
			t.Helper()
			expect(step, "", "198.51.100.1", far4, "up 192.0.2.254")
			expect(step, "", "2001:db8:1::1", far6, "up 2001:db8::fe")
			expect(step, "pod", "198.51.100.101", far4, "up 192.0.2.254") // a Service's or another host's
			expect(step, "pod", "10.1.0.5", far4, "up 192.0.2.254")       // not by a rule of a Source
			expect(step, "pod", pod4, "10.2.0.9", "up 192.0.2.2")
			expect(step, "pod", pod6, "fd00:2::9", "up 2001:db8::2")
			expect(step, "second", "198.51.100.50", pod4, "pod")
			expect(step, "second", "2001:db8:1::50", pod6, "pod")
		}
		node("before")
		sync("first", office("198.51.100.254", "2001:db8:1::fe"), false, 5+2*6)
		sync("again", office("198.51.100.254", "2001:db8:1::fe"), false, 0)
		node("first")
		expect("first", "pod", pod4, far4, "second 198.51.100.254")
		expect("first", "pod", pod6, far6, "second 2001:db8:1::fe")
		expect("first", "pod", pod4, "10.3.0.1", "second 198.51.100.7")
		expect("first", "pod", pod4, "192.0.2.9", "up")
		sync("other gateways", office("198.51.100.253", "fe80::7"), false, 2)
		expect("other gateways", "pod", pod4, far4, "second 198.51.100.253")
		expect("other gateways", "pod", pod6, far6, "second fe80::7")
		sync("tunnels", office("198.51.100.253", "fe80::7"), true, 2)
		expect("tunnels", "pod", pod4, far4, "pod")
		expect("tunnels", "", "198.51.100.1", far4, "up 192.0.2.254")
		late4, outside := addr("198.51.100.101"), addr("10.77.0.1")
		for _, a := range []netip.Addr{late4, outside, late4} {
			if err := AddToSource(a, sourceTableFirst+1, true); err != nil {
				t.Error(err)
			}
		}
		expect("late", "pod", late4.String(), "203.0.113.77", "second 198.51.100.253")
		expect("late, outside", "pod", outside.String(), "203.0.113.77", "second 198.51.100.253")
		for _, a := range []netip.Addr{late4, outside, late4} {
			if err := RemoveFromSource(a); err != nil {
				t.Error(err)
			}
		}
		sync("after DEL", office("198.51.100.253", "fe80::7"), true, 0)
		unrouted := []Source{{Addresses: pods[:1]}, {Addresses: pods[1:], Within: []netip.Prefix{prefix("2001:db8:1::/64")}}}
		sync("without routes", unrouted, true, 5+2*2+2) // one is without a prefix
		sync("without routes, again", unrouted, true, 0)
		expect("without routes", "pod", pod4, far4, "pod")
		expect("without routes", "pod", pod4, "203.0.113.77", "up 192.0.2.254")
		node("without routes")
		if err := AddToSource(outside, 0, true); err != nil {
			t.Error(err)
		}
		expect("late, without routes", "pod", outside.String(), far4, "pod")
		if err := RemoveFromSource(outside); err != nil {
			t.Error(err)
		}
		sync("without routes and tunnels", unrouted, false, 2*5)
		sync("none", nil, false, 0)
		node("none")
		expect("none", "pod", pod4, far4, "up 192.0.2.254")
		left, err := netlink.RuleListFiltered(unix.AF_INET, foreign, netlink.RT_FILTER_TABLE)
		if err != nil || len(left) != 1 {
			t.Errorf("the foreign rule is %v (%v)", left, err)
		}
		if routes, err := netlink.RouteListFiltered(unix.AF_INET, &inOurs, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST); err != nil || len(routes) != 1 {
			t.Errorf("the foreign route is %v (%v)", routes, err)
		}
		if ours, err := ourRules(); err != nil || len(ours) > 0 {
			t.Errorf("rules left: %v (%v)", ours, err)
		}
		return nil
	})
}

// Tables of others are not used, a Source keeps its table, and the number is bounded.
func TestAssignTables(t *testing.T) {
	of := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i), 0}) }
	from := func(i int) netip.Prefix { return netip.PrefixFrom(of(i), 32) }
	var all []Source
	for i := range SourcesMax {
		all = append(all, Source{Addresses: []netip.Addr{of(i)}, Routes: []Route{{}}})
	}
	tables, err := assignTables(all[:3], map[netip.Prefix]int{from(2): sourceTableFirst, from(1): 77}, map[int]bool{sourceTableFirst + 1: true})
	if want := []int{sourceTableFirst + 2, sourceTableFirst + 3, sourceTableFirst}; err != nil || fmt.Sprint(tables) != fmt.Sprint(want) {
		t.Errorf("tables %v, want %v (error %v)", tables, want, err)
	}
	none := Source{Addresses: []netip.Addr{of(200)}} // has no routes, and takes no table
	if tables, err := assignTables(append([]Source{none}, all...), map[netip.Prefix]int{from(200): sourceTableFirst}, map[int]bool{}); err != nil || tables[0] != 0 {
		t.Errorf("a Source without routes has table %d: %v", tables[0], err)
	}
	tables, err = assignTables(all, nil, map[int]bool{sourceTableFirst: true})
	if err == nil || tables[SourcesMax-1] != 0 || tables[SourcesMax-2] == 0 {
		t.Errorf("one table too few: %v (error %v)", tables, err)
	}
}

// Only Beeline's rules of single addresses are those of pods.
func TestIsOfPod(t *testing.T) {
	message := func(family, bits, protocol uint8, priority uint32) []byte {
		m := nl.NewRtMsg()
		m.Family, m.Src_len = family, bits
		m.Table = unix.RT_TABLE_MAIN
		all := append([]byte(nil), m.Serialize()...)
		for _, a := range []*nl.RtAttr{
			nl.NewRtAttr(nl.FRA_PRIORITY, nl.Uint32Attr(priority)), nl.NewRtAttr(nl.FRA_PROTOCOL, nl.Uint8Attr(protocol)),
		} {
			all = append(all, a.Serialize()...)
		}
		return all
	}
	for name, test := range map[string]struct {
		message []byte
		want    bool
	}{
		"IPv4":           {message(unix.AF_INET, 32, rtnl.Protocol, sourcePriority), true},
		"IPv6":           {message(unix.AF_INET6, 128, rtnl.Protocol, sourceEnterPriority), true},
		"a subnet":       {message(unix.AF_INET, 24, rtnl.Protocol, sourceEnterPriority), false},
		"part of IPv6":   {message(unix.AF_INET6, 32, rtnl.Protocol, sourcePriority), false},
		"of others":      {message(unix.AF_INET, 32, unix.RTPROT_STATIC, sourcePriority), false},
		"another rule":   {message(unix.AF_INET, 32, rtnl.Protocol, blackholePriority), false},
		"another family": {message(unix.AF_BRIDGE, 0, rtnl.Protocol, sourcePriority), false},
		"short":          {[]byte{unix.AF_INET}, false},
		"cut off":        {message(unix.AF_INET, 32, rtnl.Protocol, sourcePriority)[:unix.SizeofRtMsg+3], false},
	} {
		if got := IsOfPod(test.message); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Where no table is free, packets into tunnels still take them.
func TestSourceWithoutTable(t *testing.T) {
	pod := netip.MustParseAddr("192.0.2.9")
	want := []Source{{Addresses: []netip.Addr{pod}, Routes: []Route{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}}}}
	tunnel := rule{family: unix.AF_INET, priority: sourceTunnelPriority, from: hostPrefix(pod), table: TunnelTable}
	rules := rulesOf(want, []int{0}, true)
	if !rules[tunnel] {
		t.Errorf("no rule for tunnels: %v", rules)
	}
	for r := range rules {
		if r.priority == sourcePriority {
			t.Errorf("a rule for a table that the Source does not have: %v", r)
		}
	}
	if rules := rulesOf(want, []int{0}, false); len(rules) != 0 {
		t.Errorf("without tunnels: %v", rules)
	}
}
