package netdev

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// route.Table of others are found where they take the place of ours, or go before them, and nowhere else; so are the addresses that others have.
func TestForeignRoutes(t *testing.T) {
	node := devicetest.NewNode(t)
	devicetest.Inside(t, node, func() error {
		up, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		prefix := netip.MustParsePrefix
		for _, r := range []netlink.Route{
			{Dst: rtnl.IPNet(prefix("10.1.0.0/24")), LinkIndex: up, Protocol: unix.RTPROT_KERNEL, Scope: netlink.SCOPE_LINK},
			{Dst: rtnl.IPNet(prefix("10.1.0.5/32")), LinkIndex: up, Protocol: unix.RTPROT_BOOT, Scope: netlink.SCOPE_LINK},
			{Dst: rtnl.IPNet(prefix("10.2.0.64/26")), Type: unix.RTN_BLACKHOLE, Protocol: 80},
			{Dst: rtnl.IPNet(prefix("10.0.0.0/8")), LinkIndex: up, Protocol: unix.RTPROT_STATIC, Scope: netlink.SCOPE_LINK}, // wider: ours go first
			{Dst: rtnl.IPNet(prefix("10.3.0.0/24")), LinkIndex: up, Protocol: unix.RTPROT_STATIC, Scope: netlink.SCOPE_LINK},
			{Dst: rtnl.IPNet(prefix("fd00:1::/80")), LinkIndex: up, Protocol: unix.RTPROT_STATIC},
		} {
			if err := netlink.RouteAdd(&r); err != nil {
				return fmt.Errorf("%s: %w", r, err)
			}
		}
		if _, err := route.Sync([]route.Route{{Prefix: prefix("10.2.0.0/24"), Device: up}, {Prefix: prefix("10.1.0.9/32"), Device: up}}); err != nil {
			return err
		}
		routes, err := route.Read(0)
		if err != nil {
			return err
		}
		found := routes.Foreign([]netip.Prefix{prefix("10.1.0.0/24"), prefix("10.2.0.0/24"), prefix("fd00:1::/64")})
		want := "[10.1.0.0/24 dev up0 10.1.0.5/32 dev up0 blackhole 10.2.0.64/26 proto 80 fd00:1::/80 dev up0]"
		if fmt.Sprint(found) != want {
			t.Errorf("found %v, want %s", found, want)
		}

		if err := devicetest.AddAddress("up0", "10.1.0.1/32"); err != nil {
			return err
		}
		for _, a := range []string{"10.1.0.7", "192.0.2.77"} {
			mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
			if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: up, IP: net.ParseIP(a), HardwareAddr: mac, State: netlink.NUD_PERMANENT}); err != nil {
				return err
			}
		}
		taken, err := AddressesOfOthers([]netip.Prefix{prefix("10.1.0.0/24"), prefix("10.3.0.0/24")}, routes)
		if want := "[10.1.0.1 10.1.0.5 10.1.0.7]"; err != nil || fmt.Sprint(taken) != want {
			t.Errorf("taken are %v, %v; want %s", taken, err, want)
		}
		return nil
	})
}
