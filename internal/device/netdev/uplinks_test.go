package netdev

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

func TestFindMoreUplinks(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		if err := errors.Join(devicetest.AddVeth("up1", "wire1"), devicetest.AddAddress("up1", "203.0.113.1/24"), devicetest.AddVeth("up2", "wire2"), devicetest.AddAddress("up2", "2001:db8:2::1/64")); err != nil {
			return err
		}
		main, err := FindUplink("up0", nil)
		if err != nil {
			return err
		}
		expect := func(step string, names, want, wantMissing []string) {
			routes, err := route.Read(0)
			if err != nil {
				t.Fatal(err)
			}
			more, missing, err := FindMoreUplinks(main, names, routes)
			if err != nil {
				t.Errorf("%s: %v", step, err)
			}
			var got []string
			for _, u := range more {
				got = append(got, u.Name)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step, diff)
			}
			if len(missing) != len(wantMissing) {
				t.Errorf("%s: missing are %v, want %q", step, missing, wantMissing)
			}
			for i, err := range missing {
				if !strings.Contains(err.Error(), wantMissing[i]) {
					t.Errorf("%s: missing is %v, want %q", step, err, wantMissing[i])
				}
			}
		}
		expect("no default routes", []string{"auto"}, nil, nil)
		for device, route := range map[string]struct{ to, via string }{
			"up0": {"0.0.0.0/0", "192.0.2.254"}, "up2": {"::/0", "2001:db8:2::254"},
		} {
			index, err := devicetest.IndexOf(device)
			if err != nil {
				return err
			}
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: rtnl.IPNet(netip.MustParsePrefix(route.to)), Gw: netip.MustParseAddr(route.via).AsSlice()}); err != nil {
				return err
			}
		}
		expect("default routes of both families", []string{"auto"}, []string{"up2"}, nil)
		expect("by name", []string{"up0", "up1", "up9"}, []string{"up1"}, []string{"up9"})
		link, err := netlink.LinkByName("up1")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		expect("down", []string{"up0", "up1"}, nil, []string{"up1"})
		expect("twice", []string{"up2", "up2"}, []string{"up2"}, nil)

		tun := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tun1"}, Mode: netlink.TUNTAP_MODE_TUN}
		if err := netlink.LinkAdd(tun); err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetUp(tun), devicetest.AddAddress("tun1", "198.51.100.1/24")); err != nil {
			return err
		}
		expect("no Ethernet header", []string{"up0", "tun1"}, nil, []string{"device tun1 have no Ethernet header (link type none)"})
		if u, err := FindUplink("auto", []netip.Addr{netip.MustParseAddr("198.51.100.1")}); !errors.Is(err, ErrNoUplink) {
			t.Errorf("the uplink is %s: %v", u.Name, err)
		}
		return nil
	})
}
