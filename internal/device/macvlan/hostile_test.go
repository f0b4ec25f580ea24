package macvlan

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// A device is found by its MAC if the pod has renamed it, and given another device its name; else by its name.
func TestLocate(t *testing.T) {
	f := newFixture(t)
	spec := Spec{Parent: f.parent, Name: "eth0", MAC: NewMAC()}
	if _, err := f.create(spec); err != nil {
		t.Fatal(err)
	}
	f.attempt(func(link netlink.Link) error {
		decoy := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far"}
		return errors.Join(netlink.LinkSetName(link, "hidden"), netlink.LinkAdd(decoy))
	})
	if found, err := Locate(f.pod, spec); err != nil || found.Name != "hidden" {
		t.Errorf("renamed: %+v, %v", found, err)
	}
	f.inPod(func() error {
		hidden := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "hidden"}, Mode: netlink.MACVLAN_MODE_BRIDGE}
		link, err := netlink.LinkByName("hidden")
		hidden.Index = link.Attrs().Index
		return errors.Join(err, netlink.LinkModify(hidden))
	})
	if err := Repair(f.pod, spec); err != nil {
		t.Error(err)
	}
	if found := f.find("hidden"); found.Mode != vepa {
		t.Errorf("the mode of the renamed device is %s", found.Mode)
	}
	for _, other := range []Spec{{Parent: f.parent, Name: "eth0", MAC: NewMAC()}, {Parent: f.parent + 1, Name: "hidden", MAC: spec.MAC}} {
		if found, err := Locate(f.pod, other); !rtnl.IsNotFound(err) {
			t.Errorf("%+v is %+v, %v", other, found, err)
		}
		if err := Repair(f.pod, other); !rtnl.IsNotFound(err) {
			t.Errorf("%+v repaired: %v", other, err)
		}
	}
	if found, err := Locate(f.pod, Spec{Parent: f.parent, Name: "hidden", MAC: NewMAC()}); err != nil || found.Name != "hidden" {
		t.Errorf("by name: %+v, %v", found, err)
	}
}

// A device is deleted by its MAC only: one with its name may be that of another ADD.
func TestDeleteMAC(t *testing.T) {
	f := newFixture(t)
	spec := Spec{Parent: f.parent, Name: "eth0", MAC: NewMAC()}
	if _, err := f.create(spec); err != nil {
		t.Fatal(err)
	}
	for _, other := range []Spec{{Parent: f.parent, MAC: NewMAC()}, {Parent: f.parent + 1, MAC: spec.MAC}} {
		if err := DeleteMAC(f.pod, other.Parent, other.MAC); err != nil {
			t.Error(err)
		}
		f.find("eth0")
	}
	f.attempt(func(link netlink.Link) error { return netlink.LinkSetName(link, "hidden") })
	if err := errors.Join(DeleteMAC(f.pod, spec.Parent, spec.MAC), DeleteMAC(f.pod, spec.Parent, spec.MAC)); err != nil {
		t.Error(err)
	}
	if all, err := List(f.pod); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
}

// A device without carrier sends nothing, also by packet sockets that skip its queue, and keeps its addresses.
func TestSetProtoDown(t *testing.T) {
	f := newFixture(t)
	spec := Spec{Parent: f.parent, Name: "eth0", MAC: NewMAC()}
	if _, err := f.create(spec); err != nil {
		t.Fatal(err)
	}
	f.attempt(func(link netlink.Link) error {
		address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 9), Mask: net.CIDRMask(24, 32)}}
		return errors.Join(netlink.AddrAdd(link, address), netlink.LinkSetUp(link))
	})
	sent := func() uint64 {
		t.Helper()
		packets, ok := PacketsFrom(f.pod, spec)
		if !ok {
			t.Fatal("the device has no counter")
		}
		return packets
	}
	for _, down := range []bool{false, true, true, false} {
		if err := SetProtoDown(f.pod, spec, down); err != nil {
			t.Fatal(err)
		}
		before := sent()
		f.attempt(func(link netlink.Link) error { return sendPast(link.Attrs().Index) })
		if more := sent() > before; more == down {
			t.Errorf("protodown %t: packets sent %t", down, more)
		}
		f.attempt(func(link netlink.Link) error {
			if all, err := netlink.AddrList(link, unix.AF_INET); err != nil || len(all) != 1 {
				t.Errorf("protodown %t: addresses %v, %v", down, all, err)
			}
			return nil
		})
	}
	if err := SetProtoDown(f.pod, Spec{Parent: f.parent, Name: "absent", MAC: NewMAC()}, true); !rtnl.IsNotFound(err) {
		t.Errorf("no such device: %v", err)
	}
}

// sendPast sends a frame by a packet socket past the queue of a device; that it is rejected is no error.
func sendPast(index int) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return err
	}
	err = unix.Sendto(fd, make([]byte, 64), 0, &unix.SockaddrLinklayer{Ifindex: index, Protocol: unix.ETH_P_IP})
	if errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENETDOWN) {
		return nil
	}
	return err
}
