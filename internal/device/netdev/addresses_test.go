package netdev

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
)

func TestLocalAddresses(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetUp(lo), devicetest.AddAddress("lo", "203.0.113.7/32"), devicetest.AddAddress("wire", "192.0.2.1/24")); err != nil {
			return err
		}
		var want []netip.Addr
		for _, a := range []string{"127.0.0.1", "192.0.2.1", "203.0.113.7", "::1", "2001:db8::1"} {
			want = append(want, netip.MustParseAddr(a))
		}
		got, err := LocalAddresses()
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		return err
	})
}
