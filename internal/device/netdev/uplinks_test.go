package netdev

import (
	"errors"
	"net/netip"
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
			if diff := cmp.Diff(wantMissing, missing); diff != "" {
				t.Errorf("%s: missing (-want +got):\n%s", step, diff)
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
		return nil
	})
}
