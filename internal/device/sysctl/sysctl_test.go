package sysctl

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
)

func TestSet(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		const key = "net/ipv4/conf/up0/rp_filter"
		if _, err := Set(key, "2"); err != nil {
			return err
		}
		for _, step := range []struct {
			value string
			want  []Change
		}{
			{"0", []Change{{key, "2", "0"}}},
			{"0", nil},
			{"1", []Change{{key, "0", "1"}}},
		} {
			changes, err := Set(key, step.value)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(step.want, changes); diff != "" {
				t.Error(diff)
			}
		}
		if _, err := Set("net/ipv4/no_such_thing", "1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("unknown key: %v", err)
		}
		if _, err := Set(key, "many"); err == nil {
			t.Error("impossible value: no error")
		}
		for _, outside := range []string{"../../etc/hostname", "/etc/hostname", ""} {
			if _, err := Set(outside, "1"); err == nil {
				t.Errorf("%q: no error", outside)
			}
		}
		return nil
	})
}

func TestEnableForwarding(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		prepare := func(key, value string) {
			if _, err := Set(key, value); err != nil {
				t.Fatal(err)
			}
		}
		prepare("net/ipv4/ip_forward", "0")
		prepare("net/ipv6/conf/all/forwarding", "0")
		prepare("net/ipv6/conf/up0/accept_ra", "1")
		prepare("net/ipv6/conf/wire/accept_ra", "1")
		for _, want := range [][]Change{
			{{"net/ipv4/ip_forward", "0", "1"}, {"net/ipv6/conf/up0/accept_ra", "1", "2"}, {"net/ipv6/conf/all/forwarding", "0", "1"}},
			nil,
		} {
			changes, err := EnableForwarding("up0", true, true)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(want, changes); diff != "" {
				t.Error(diff)
			}
		}
		// Router advertisements that are off stay off.
		prepare("net/ipv6/conf/up0/accept_ra", "0")
		if changes, err := EnableForwarding("up0", false, true); err != nil || changes != nil {
			t.Errorf("changed %v, error %v", changes, err)
		}
		// An uplink with too small an MTU for IPv6 has no IPv6 settings.
		up, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMTU(up, 1279); err != nil {
			return err
		}
		prepare("net/ipv6/conf/all/forwarding", "0")
		changes, err := EnableForwarding("up0", false, true)
		if len(changes) != 1 {
			t.Errorf("changed %v", changes)
		}
		return err
	})
}

func TestEnableOnUplink(t *testing.T) {
	for name, c := range map[string]struct {
		set        func(uplink string) ([]Change, error)
		key4, key6 string
	}{
		"resolicit": {EnableMulticastResolicit, "net/ipv4/neigh/up0/mcast_resolicit", "net/ipv6/neigh/up0/mcast_resolicit"},
		"notify":    {EnableAddressNotify, "net/ipv4/conf/up0/arp_notify", "net/ipv6/conf/up0/ndisc_notify"},
	} {
		t.Run(name, func(t *testing.T) {
			devicetest.Inside(t, devicetest.NewNode(t), func() error {
				for _, key := range []string{c.key4, c.key6} {
					if _, err := Set(key, "0"); err != nil {
						return err
					}
				}
				for _, want := range [][]Change{{{c.key4, "0", "1"}, {c.key6, "0", "1"}}, nil} {
					changes, err := c.set("up0")
					if err != nil {
						return err
					}
					if diff := cmp.Diff(want, changes); diff != "" {
						t.Error(diff)
					}
				}
				changes, err := c.set("absent")
				if changes != nil {
					t.Errorf("changed %v", changes)
				}
				return err
			})
		})
	}
}
