package netdev

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

func TestFindUplink(t *testing.T) {
	ours, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		if err := errors.Join(devicetest.AddVeth("up1", "wire1"), devicetest.AddAddress("up1", "203.0.113.1/24"), devicetest.AddAddress("up1", "2001:db8:1::1/64")); err != nil {
			return err
		}
		up1, err := devicetest.IndexOf("up1")
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

		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: up1, Dst: rtnl.IPNet(netip.MustParsePrefix("::/0")), Gw: netip.MustParseAddr("2001:db8:1::2").AsSlice()}); err != nil {
			return err
		}
		find("by IPv6 default route", "auto", []netip.Addr{other}, "up1")
		up0, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		for _, r := range []struct {
			device, metric int
			gateway        string
		}{{up0, 100, "192.0.2.2"}, {up1, 200, "203.0.113.2"}} {
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: r.device, Priority: r.metric, Dst: rtnl.IPNet(netip.MustParsePrefix("0.0.0.0/0")), Gw: netip.MustParseAddr(r.gateway).AsSlice()}); err != nil {
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
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		index, err := devicetest.IndexOf("up0")
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

// The tunnel devices have the node's addresses too. They are never the uplink, and Held ignores them.
func TestTunnelsAreNoUplinks(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		for _, name := range []string{wireguard.Name, ipsec.Name} {
			if err := errors.Join(devicetest.AddVeth(name, "to-"+name[:10]), devicetest.AddAddress(name, "192.0.2.1/32")); err != nil {
				return err
			}
		}
		nodeIPv4, nodeIPv6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
		spec := vxlan.Spec{Port: 4789, MTU: 1450, Addresses: []netip.Addr{nodeIPv4, nodeIPv6}}
		if _, _, err := vxlan.Sync(spec, func(int) error { return nil }); err != nil {
			return err
		}
		found, err := FindUplink("auto", spec.Addresses)
		if err != nil || found.Name != "up0" {
			t.Errorf("the uplink is %q (%v)", found.Name, err)
		}
		up0, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		if err := netlink.AddrDel(up0, &netlink.Addr{IPNet: rtnl.IPNet(netip.MustParsePrefix("192.0.2.1/24"))}); err != nil {
			return err
		}
		held, err := Held([]netip.Addr{nodeIPv4, nodeIPv6, netip.MustParseAddr("203.0.113.1")})
		if err != nil || len(held) != 1 || held[0] != nodeIPv6 {
			t.Errorf("the node holds %v (%v)", held, err)
		}
		return nil
	})
}
