package vxlan

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

var (
	nodeIPv4, nodeIPv6 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	spec1              = Spec{Port: 4789, MTU: 1450, Addresses: []netip.Addr{nodeIPv4, nodeIPv6}}
)

// check compares the device with spec.
func check(t *testing.T, spec Spec) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(Name)
	if err != nil {
		t.Fatal(err)
	}
	attrs := link.Attrs()
	if !matches(link, spec) || attrs.MTU != spec.MTU || attrs.HardwareAddr.String() != MAC.String() ||
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

// Sync repairs every change of the device, without replacing it where possible. It calls attach before it sets the device up.
func TestSync(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		attached := 0
		sync := func(step string, spec Spec, wantMade, wantAttach bool) int {
			t.Helper()
			before := attached
			index, made, err := Sync(spec, func(index int) error {
				attached++
				link, err := netlink.LinkByIndex(index)
				if err != nil {
					return err
				}
				if link.Attrs().Flags&net.FlagUp != 0 {
					t.Errorf("%s: the device is up already", step)
				}
				return nil
			})
			if err != nil || made != wantMade || (attached > before) != wantAttach {
				t.Errorf("%s: made %t, attached %t, want %t, %t (error %v)", step, made, attached > before, wantMade, wantAttach, err)
			}
			if link := check(t, spec); link.Attrs().Index != index {
				t.Errorf("%s: index %d, the device's is %d", step, index, link.Attrs().Index)
			}
			return index
		}
		change := func(what func(netlink.Link) error) {
			t.Helper()
			link, err := netlink.LinkByName(Name)
			if err == nil {
				err = what(link)
			}
			if err != nil {
				t.Fatal(err)
			}
		}

		first := sync("first", spec1, true, true)
		same := func(step string, spec Spec, wantAttach bool) {
			t.Helper()
			if index := sync(step, spec, false, wantAttach); index != first {
				t.Errorf("%s: the device was replaced", step)
			}
		}
		same("again", spec1, false)
		change(netlink.LinkSetDown)
		same("set down", spec1, true)
		change(netlink.LinkSetARPOn)
		same("with ARP", spec1, false)
		change(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1200) })
		same("MTU below the minimum of IPv6", spec1, false)
		change(func(l netlink.Link) error {
			return netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 9})
		})
		same("other link-layer address", spec1, false)
		change(func(l netlink.Link) error {
			foreign := netip.MustParsePrefix("203.0.113.1/24")
			return errors.Join(netlink.AddrAdd(l, &netlink.Addr{IPNet: rtnl.IPNet(foreign)}),
				netlink.AddrDel(l, &netlink.Addr{IPNet: rtnl.IPNet(netip.PrefixFrom(nodeIPv4, 32))}))
		})
		same("other addresses", spec1, false)
		smaller := spec1
		smaller.MTU, smaller.Addresses = 1430, []netip.Addr{nodeIPv6}
		same("smaller, over IPv6 only", smaller, false)

		change(netlink.LinkDel)
		second := sync("deleted", spec1, true, true)
		other := spec1
		other.Port = 8472
		if index := sync("on another port", other, true, true); index == second {
			t.Error("the port changed without a new device")
		}
		for _, want := range []bool{true, false} {
			if removed, err := Remove(); err != nil || removed != want {
				t.Errorf("removed %t, want %t (error %v)", removed, want, err)
			}
		}
		if _, err := netlink.LinkByName(Name); !rtnl.IsNotFound(err) {
			t.Errorf("the device is still there: %v", err)
		}
		return nil
	})
}

// The error names the device or program that conflicts.
func TestSyncConflict(t *testing.T) {
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
		"a flow-based device": {
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
			func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrsOf(Name)}) },
			"beeline-vxlan is a device of type bridge",
		},
	} {
		t.Run(name, func(t *testing.T) {
			devicetest.Inside(t, devicetest.NewNode(t), func() error {
				if err := c.take(); err != nil {
					return err
				}
				_, _, err := Sync(spec1, func(int) error { return nil })
				if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error is %v, want %q", err, c.want)
				}
				// The device, if it exists, is down, and another attempt does not replace it.
				before := linksOf(t)
				if _, _, err := Sync(spec1, func(int) error { return nil }); !errors.Is(err, ErrConflict) {
					t.Errorf("the second time, error is %v", err)
				}
				if after := linksOf(t); after != before || strings.Contains(after, Name+" up") {
					t.Errorf("devices are %s, before %s", after, before)
				}
				return nil
			})
		})
	}
}

func TestSyncWithoutPrograms(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		refusal := errors.New("no programs")
		if _, _, err := Sync(spec1, func(int) error { return refusal }); !errors.Is(err, refusal) {
			t.Errorf("error is %v", err)
		}
		if links := linksOf(t); !strings.Contains(links, Name+" down") {
			t.Errorf("devices are %s", links)
		}
		if _, made, err := Sync(spec1, func(int) error { return nil }); err != nil || made {
			t.Errorf("with programs: made %t, %v", made, err)
		}
		check(t, spec1)
		return nil
	})
}

// Routes through the tunnel in both tables, and rules, are added and deleted without touching those of others.
func TestTunnelRoutesAndRules(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		index, _, err := Sync(spec1, func(int) error { return nil })
		if err != nil {
			return err
		}
		foreign := netlink.NewRule()
		foreign.Src, foreign.Table, foreign.Priority = rtnl.IPNet(devicetest.Pod4), 77, 77
		if err := netlink.RuleAdd(foreign); err != nil {
			return err
		}
		var routes []route.Route
		for _, p := range []string{"10.2.0.0/24", "fd00:2::/64"} {
			main := Route(netip.MustParsePrefix(p), index, 1450)
			main.Source = nodeIPv4
			if main.Prefix.Addr().Is6() {
				main.Source = nodeIPv6
			}
			own := Route(netip.MustParsePrefix(p), index, 1450)
			own.Table = route.TunnelTable
			routes = append(routes, main, own)
		}
		for step, c := range []struct {
			routes  []route.Route
			changed int
		}{{routes, 4}, {routes, 0}, {routes[:3], 1}, {routes, 1}, {nil, 4}} {
			if changed, err := route.Sync(c.routes); err != nil || changed != c.changed {
				t.Errorf("routes, step %d: %d changed, want %d (error %v)", step, changed, c.changed, err)
			}
		}
		for step, c := range []struct {
			sources []netip.Prefix
			changed int
		}{{[]netip.Prefix{devicetest.Pod4, devicetest.Pod6}, 2}, {[]netip.Prefix{devicetest.Pod4, devicetest.Pod6}, 0}, {[]netip.Prefix{devicetest.Pod6}, 1}, {nil, 1}, {nil, 0}} {
			if changed, err := route.SyncTunnelRules(c.sources); err != nil || changed != c.changed {
				t.Errorf("rules, step %d: %d changed, want %d (error %v)", step, changed, c.changed, err)
			}
		}
		left, err := netlink.RuleListFiltered(unix.AF_INET, foreign, netlink.RT_FILTER_TABLE)
		if err != nil || len(left) != 1 {
			t.Errorf("the foreign rule is %v (%v)", left, err)
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
