package vlan

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestName(t *testing.T) {
	if got := Name("eth0", 7); got != "eth0.7" {
		t.Errorf("eth0, 7: %s", got)
	}
	if got := Name("enp101s0f1", 4094); got != "enp101s0f1.4094" { // 15 bytes
		t.Errorf("a name that fits: %s", got)
	}
	seen := map[string]bool{}
	for _, parent := range []string{"enp101s0f1n", "enp101s0f1x", "fifteen-bytes-x"} {
		name := Name(parent, 4094)
		if len(name) > nameMax || seen[name] || name != Name(parent, 4094) || !strings.HasSuffix(name, ".4094") {
			t.Errorf("%s, 4094: %s", parent, name)
		}
		seen[name] = true
	}
}

// The administrator's device of the parent and the tag comes before Beeline's.
func TestFind(t *testing.T) {
	q := netlink.VLAN_PROTOCOL_8021Q
	own, other := Device{Name: "eth0.7", Parent: 2, Tag: 7, Own: true, protocol: q}, Device{Name: "office", Parent: 2, Tag: 7, protocol: q}
	all := []Device{{Name: "s", Parent: 2, Tag: 7, protocol: netlink.VLAN_PROTOCOL_8021AD}, {Parent: 3, Tag: 7, protocol: q}, {Parent: 2, Tag: 8, protocol: q}}
	if got, ok := Find(all, 2, 7); ok {
		t.Errorf("found %+v", got)
	}
	for _, list := range [][]Device{append(slices.Clone(all), own, other), append(slices.Clone(all), other, own)} {
		if got, ok := Find(list, 2, 7); !ok || got.Name != "office" {
			t.Errorf("found %+v, %t", got, ok)
		}
	}
	if got, ok := Find(append(all, own), 2, 7); !ok || got.Name != "eth0.7" {
		t.Errorf("found %+v, %t", got, ok)
	}
}

// onNode runs f in a namespace with up0, on a kernel with VLAN devices.
func onNode(t *testing.T, f func(up0 *netlink.LinkAttrs) error) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		if err := f(link.Attrs()); errors.Is(err, ErrUnsupported) {
			testenv.Missing(t, "not on this kernel: VLAN devices")
		} else if err != nil {
			return err
		}
		return nil
	})
}

// Make marks the device, Open follows the MTU of the device below, and Remove and RemoveAll keep what the administrator has made.
func TestMakeOpenRemove(t *testing.T) {
	onNode(t, func(up0 *netlink.LinkAttrs) error {
		d, err := Make("up0", up0.Index, 1400, 7)
		if err != nil {
			return err
		}
		if d.Name != "up0.7" || d.Parent != up0.Index || d.Tag != 7 || d.MTU != 1400 || !d.Own || d.Up {
			t.Errorf("made %+v", d)
		}
		for _, mtu := range []int{1400, 1300, up0.MTU} {
			if err := Open(d, mtu); err != nil {
				return err
			}
			all, err := List()
			if err != nil {
				return err
			}
			if len(all) != 1 || !all[0].Own || !all[0].Up || all[0].MTU != mtu {
				t.Errorf("opened with MTU %d: %+v", mtu, all)
			}
			d = all[0]
		}
		if _, err := Make("up0", up0.Index, 1400, 7); !errors.Is(err, ErrConflict) {
			t.Errorf("made twice: %v", err)
		}
		admins := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "office", ParentIndex: up0.Index}, VlanId: 8}
		if err := netlink.LinkAdd(admins); err != nil {
			return err
		}
		all, err := List()
		if err != nil {
			return err
		}
		found, ok := Find(all, up0.Index, 8)
		if !ok || found.Own || found.Name != "office" {
			t.Errorf("the administrator's: %+v, %t", found, ok)
		}
		if err := Open(found, 1400); !errors.Is(err, ErrDown) {
			t.Errorf("the administrator's device is down: %v", err)
		}
		if err := Remove(found); err != nil {
			return err
		}
		if removed, err := RemoveAll(); err != nil || !slices.Equal(removed, []string{"up0.7"}) {
			t.Errorf("removed %v, %v", removed, err)
		}
		if all, err := List(); err != nil || len(all) != 1 || all[0].Name != "office" {
			t.Errorf("left: %+v, %v", all, err)
		}
		return nil
	})
}

// A device of the name with another tag, or of another kind, is a conflict.
func TestConflict(t *testing.T) {
	onNode(t, func(up0 *netlink.LinkAttrs) error {
		if err := devicetest.AddVeth("up0.9", "wire9"); err != nil {
			return err
		}
		_, err := Make("up0", up0.Index, 1400, 9)
		if errors.Is(err, ErrUnsupported) {
			return err
		}
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "up0.9") {
			t.Errorf("another device of that name: %v", err)
		}
		return nil
	})
}

// On a kernel without VLAN devices the error says so.
func TestUnsupported(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		if _, err = Make("up0", link.Attrs().Index, 1400, 7); err == nil {
			testenv.Missing(t, "not on this kernel: no VLAN devices")
		}
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "CONFIG_VLAN_8021Q") {
			t.Errorf("made: %v", err)
		}
		return nil
	})
}
