package device

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

func TestFindUplink(t *testing.T) {
	ours, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	inside(t, newNode(t), func() error {
		if err := errors.Join(addVeth("up1", "wire1"), addAddress("up1", "203.0.113.1/24"), addAddress("up1", "2001:db8:1::1/64")); err != nil {
			return err
		}
		up1, err := indexOf("up1")
		if err != nil {
			return err
		}
		find := func(step, name string, addresses []netip.Addr, want string) Uplink {
			found, err := FindUplink(name, addresses)
			if want == "" {
				if !errors.Is(err, ErrNoUplink) {
					t.Errorf("%s: got %v, %v", step, found.Name, err)
				} else if !strings.Contains(err.Error(), "up0 (up)") && !strings.Contains(err.Error(), "is down") {
					t.Errorf("%s: the error does not say what is there: %v", step, err)
				}
			} else if err != nil || found.Name != want {
				t.Errorf("%s: got %q, want %q (error %v)", step, found.Name, want, err)
			}
			return found
		}
		found := find("by address", "auto", []netip.Addr{other, ours}, "up0")
		wantAddresses := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")}
		if diff := cmp.Diff(wantAddresses, found.Addresses, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Error(diff)
		}
		if found.MTU != 1500 || len(found.MAC) != 6 || found.Index == 0 {
			t.Errorf("got %+v", found)
		}
		find("by IPv6 address", "", []netip.Addr{netip.MustParseAddr("2001:db8:1::1")}, "up1")
		find("by name", "wire", nil, "wire")
		find("by unknown name", "eth7", []netip.Addr{ours}, "")
		find("by loopback that is down", "lo", nil, "")
		find("nothing fits", "auto", []netip.Addr{other}, "")

		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: up1, Dst: ipNetOf(netip.MustParsePrefix("::/0")), Gw: netip.MustParseAddr("2001:db8:1::2").AsSlice()}); err != nil {
			return err
		}
		find("by IPv6 default route", "auto", []netip.Addr{other}, "up1")
		up0, err := indexOf("up0")
		if err != nil {
			return err
		}
		for _, r := range []struct {
			device, metric int
			gateway        string
		}{{up0, 100, "192.0.2.2"}, {up1, 200, "203.0.113.2"}} {
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: r.device, Priority: r.metric, Dst: ipNetOf(netip.MustParsePrefix("0.0.0.0/0")), Gw: netip.MustParseAddr(r.gateway).AsSlice()}); err != nil {
				return err
			}
		}
		find("by the best IPv4 default route", "auto", nil, "up0")

		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		find("the device with the address is down", "auto", []netip.Addr{ours}, "up1")
		find("by name, down", "up0", nil, "")
		return nil
	})
}

func TestKind(t *testing.T) {
	inside(t, newNode(t), func() error {
		index, err := indexOf("up0")
		if err != nil {
			return err
		}
		if kind, err := Kind(index); err != nil || kind != "veth" {
			t.Errorf("got %q, %v", kind, err)
		}
		if kind, err := Kind(1 << 20); err == nil {
			t.Errorf("a device that is not there is of kind %q", kind)
		}
		return nil
	})
}
