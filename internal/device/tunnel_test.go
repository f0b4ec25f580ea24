package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var (
	nodeIPv4, nodeIPv6 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	aTunnel            = TunnelSpec{Port: 4789, MTU: 1450, Addresses: []netip.Addr{nodeIPv4, nodeIPv6}}
)

// checkTunnel reads the device back.
func checkTunnel(t *testing.T, spec TunnelSpec) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(TunnelName)
	if err != nil {
		t.Fatal(err)
	}
	attrs := link.Attrs()
	if !isTunnel(link, spec) || attrs.MTU != spec.MTU || attrs.HardwareAddr.String() != TunnelMAC.String() ||
		attrs.Flags&net.FlagUp == 0 || attrs.RawFlags&unix.IFF_NOARP == 0 {
		t.Errorf("the device is %+v", link)
	}
	list, err := netlink.AddrList(link, unix.AF_UNSPEC)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range list {
		if !a.IP.IsLinkLocalUnicast() {
			got = append(got, a.IPNet.String())
		}
	}
	var want []string
	for _, a := range spec.Addresses {
		want = append(want, netip.PrefixFrom(a, a.BitLen()).String())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
	return link
}

// Whatever somebody does to the device, it is as it should be afterwards, and the same one wherever that can be. It
// is set up only when the guard has seen it.
func TestSyncTunnel(t *testing.T) {
	inside(t, newNode(t), func() error {
		guarded := 0
		sync := func(step string, spec TunnelSpec, wantMade, wantGuard bool) int {
			t.Helper()
			before := guarded
			index, made, err := SyncTunnel(spec, func(index int) error {
				guarded++
				link, err := netlink.LinkByIndex(index)
				if err != nil {
					return err
				}
				if link.Attrs().Flags&net.FlagUp != 0 {
					t.Errorf("%s: the device is up already", step)
				}
				return nil
			})
			if err != nil || made != wantMade || (guarded > before) != wantGuard {
				t.Errorf("%s: made %t, guarded %t, want %t, %t (error %v)", step, made, guarded > before, wantMade, wantGuard, err)
			}
			if link := checkTunnel(t, spec); link.Attrs().Index != index {
				t.Errorf("%s: index %d, the device's is %d", step, index, link.Attrs().Index)
			}
			return index
		}
		spoil := func(what func(netlink.Link) error) {
			t.Helper()
			link, err := netlink.LinkByName(TunnelName)
			if err == nil {
				err = what(link)
			}
			if err != nil {
				t.Fatal(err)
			}
		}

		first := sync("first", aTunnel, true, true)
		same := func(step string, spec TunnelSpec, wantGuard bool) {
			t.Helper()
			if index := sync(step, spec, false, wantGuard); index != first {
				t.Errorf("%s: the device is another one", step)
			}
		}
		same("again", aTunnel, false)
		spoil(netlink.LinkSetDown)
		same("after somebody has set it down", aTunnel, true)
		spoil(netlink.LinkSetARPOn)
		same("after somebody has made it ask for addresses", aTunnel, false)
		spoil(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1200) })
		same("after somebody has made it smaller than IPv6 needs", aTunnel, false)
		spoil(func(l netlink.Link) error {
			return netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 9})
		})
		same("after somebody has given it another address", aTunnel, false)
		spoil(func(l netlink.Link) error {
			foreign := netip.MustParsePrefix("203.0.113.1/24")
			return errors.Join(netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNetOf(foreign)}),
				netlink.AddrDel(l, &netlink.Addr{IPNet: ipNetOf(netip.PrefixFrom(nodeIPv4, 32))}))
		})
		same("after somebody has changed its addresses", aTunnel, false)
		smaller := aTunnel
		smaller.MTU, smaller.Addresses = 1430, []netip.Addr{nodeIPv6}
		same("smaller, over IPv6 only", smaller, false)

		spoil(netlink.LinkDel)
		second := sync("after somebody has deleted it", aTunnel, true, true)
		other := aTunnel
		other.Port = 8472
		if index := sync("on another port", other, true, true); index == second {
			t.Error("a port can be changed?")
		}
		for _, want := range []bool{true, false} {
			if removed, err := RemoveTunnel(); err != nil || removed != want {
				t.Errorf("removed %t, want %t (error %v)", removed, want, err)
			}
		}
		if _, err := netlink.LinkByName(TunnelName); !isNotFound(err) {
			t.Errorf("the device is still there: %v", err)
		}
		return nil
	})
}

// Who is in the way is named.
func TestSyncTunnelTaken(t *testing.T) {
	const port = 4789
	add := func(v *netlink.Vxlan) error {
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		return netlink.LinkSetUp(v)
	}
	for name, c := range map[string]struct {
		take func() error
		want string
	}{
		"a device for one network": {
			func() error { return add(&netlink.Vxlan{LinkAttrs: attrsOf("flannel.1"), VxlanId: 1, Port: port}) },
			"UDP port 4789 is in use by device flannel.1",
		},
		"a device like ours": {
			func() error {
				return add(&netlink.Vxlan{LinkAttrs: attrsOf("cilium_vxlan"), FlowBased: true, Port: port})
			},
			"UDP port 4789 is in use by device cilium_vxlan",
		},
		"another program": {
			func() error {
				c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
				if err == nil {
					t.Cleanup(func() { c.Close() })
				}
				return err
			},
			"UDP port 4789 is in use by another program",
		},
		"a device of another type": {
			func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrsOf(TunnelName)}) },
			"beeline-vxlan is a device of type bridge",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inside(t, newNode(t), func() error {
				if err := c.take(); err != nil {
					return err
				}
				_, _, err := SyncTunnel(aTunnel, func(int) error { return nil })
				if !errors.Is(err, ErrTunnelTaken) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error is %v, want %q", err, c.want)
				}
				// Whatever there is of the device is down, and trying again makes no other one.
				before := linksOf(t)
				if _, _, err := SyncTunnel(aTunnel, func(int) error { return nil }); !errors.Is(err, ErrTunnelTaken) {
					t.Errorf("the second time, error is %v", err)
				}
				if after := linksOf(t); after != before || strings.Contains(after, TunnelName+" up") {
					t.Errorf("devices are %s, before %s", after, before)
				}
				return nil
			})
		})
	}
}

func TestSyncTunnelGuardRefuses(t *testing.T) {
	inside(t, newNode(t), func() error {
		refusal := errors.New("no programs")
		if _, _, err := SyncTunnel(aTunnel, func(int) error { return refusal }); !errors.Is(err, refusal) {
			t.Errorf("error is %v", err)
		}
		if links := linksOf(t); !strings.Contains(links, TunnelName+" down") {
			t.Errorf("devices are %s", links)
		}
		if _, made, err := SyncTunnel(aTunnel, func(int) error { return nil }); err != nil || made {
			t.Errorf("when it is not refused any more: made %t, %v", made, err)
		}
		checkTunnel(t, aTunnel)
		return nil
	})
}

// The tunnel device holds the node's addresses too and is never the uplink, nor counts for what the node holds.
func TestTunnelIsNoUplink(t *testing.T) {
	inside(t, newNode(t), func() error {
		if _, _, err := SyncTunnel(aTunnel, func(int) error { return nil }); err != nil {
			return err
		}
		found, err := FindUplink("auto", aTunnel.Addresses)
		if err != nil || found.Name != "up0" {
			t.Errorf("the uplink is %q (%v)", found.Name, err)
		}
		up0, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		if err := netlink.AddrDel(up0, &netlink.Addr{IPNet: ipNetOf(netip.MustParsePrefix("192.0.2.1/24"))}); err != nil {
			return err
		}
		held, err := Held([]netip.Addr{nodeIPv4, nodeIPv6, netip.MustParseAddr("203.0.113.1")})
		if err != nil || len(held) != 1 || held[0] != nodeIPv6 {
			t.Errorf("the node holds %v (%v)", held, err)
		}
		return nil
	})
}

// Routes through the tunnel in both tables, and rules, come and go without touching those of others.
func TestTunnelRoutesAndRules(t *testing.T) {
	inside(t, newNode(t), func() error {
		index, _, err := SyncTunnel(aTunnel, func(int) error { return nil })
		if err != nil {
			return err
		}
		foreign := netlink.NewRule()
		foreign.Src, foreign.Table, foreign.Priority = ipNetOf(pod4), 77, 77
		if err := netlink.RuleAdd(foreign); err != nil {
			return err
		}
		var routes []Route
		for _, p := range []string{"10.2.0.0/24", "fd00:2::/64"} {
			main := TunnelRoute(netip.MustParsePrefix(p), index, 1450)
			main.Source = nodeIPv4
			if main.Prefix.Addr().Is6() {
				main.Source = nodeIPv6
			}
			own := TunnelRoute(netip.MustParsePrefix(p), index, 1450)
			own.Table = TunnelTable
			routes = append(routes, main, own)
		}
		for step, c := range []struct {
			routes  []Route
			changed int
		}{{routes, 4}, {routes, 0}, {routes[:3], 1}, {routes, 1}, {nil, 4}} {
			if changed, err := SyncRoutes(c.routes); err != nil || changed != c.changed {
				t.Errorf("routes, step %d: %d changed, want %d (error %v)", step, changed, c.changed, err)
			}
		}
		for step, c := range []struct {
			sources []netip.Prefix
			changed int
		}{{[]netip.Prefix{pod4, pod6}, 2}, {[]netip.Prefix{pod4, pod6}, 0}, {[]netip.Prefix{pod6}, 1}, {nil, 1}, {nil, 0}} {
			if changed, err := SyncRules(c.sources); err != nil || changed != c.changed {
				t.Errorf("rules, step %d: %d changed, want %d (error %v)", step, changed, c.changed, err)
			}
		}
		left, err := netlink.RuleListFiltered(unix.AF_INET, foreign, netlink.RT_FILTER_TABLE)
		if err != nil || len(left) != 1 {
			t.Errorf("of somebody else's rule there is %v (%v)", left, err)
		}
		return nil
	})
}

func attrsOf(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}

// linksOf lists the devices of the namespace with their indexes and states.
func linksOf(t *testing.T) string {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range links {
		state := "down"
		if l.Attrs().Flags&net.FlagUp != 0 {
			state = "up"
		}
		all = append(all, fmt.Sprintf("%d: %s %s", l.Attrs().Index, l.Attrs().Name, state))
	}
	return strings.Join(all, ", ")
}
