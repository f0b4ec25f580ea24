// Package devicetest holds what the tests of the packages below internal/device share.
package devicetest

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Addresses of a pod in tests.
var (
	Pod4 = netip.MustParsePrefix("10.1.0.5/32")
	Pod6 = netip.MustParsePrefix("fd00:1::5/128")
)

// Inside runs f in a network namespace and ends the test if it returns an error.
func Inside(t testing.TB, namespace ns.NetNS, f func() error) {
	t.Helper()
	if err := namespace.Do(func(ns.NetNS) error { return f() }); err != nil {
		t.Fatal(err)
	}
}

// NewNode makes a namespace with a device up0 that has an address of each family: 192.0.2.1/24 and 2001:db8::1/64.
func NewNode(t testing.TB) ns.NetNS {
	t.Helper()
	node := testenv.NewNetns(t)
	Inside(t, node, func() error {
		// Link-local addresses are valid at once: else the kernel reports them anew after one or two seconds.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0); err != nil {
			return err
		}
		if err := AddVeth("up0", "wire"); err != nil {
			return err
		}
		return errors.Join(AddAddress("up0", "192.0.2.1/24"), AddAddress("up0", "2001:db8::1/64"))
	})
	return node
}

// named is a device that netlink finds by its name.
func named(name string) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: name}}
}

// AddVeth makes a veth pair in the calling thread's namespace, both ends up.
func AddVeth(name, peer string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := netlink.NewVeth(attrs)
	veth.PeerName = peer
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(named(name)), netlink.LinkSetUp(named(peer)))
}

// AddAddress adds an address to a device, without duplicate address detection.
func AddAddress(name, prefix string) error {
	p := netip.MustParsePrefix(prefix)
	address := &netlink.Addr{IPNet: rtnl.IPNet(p)}
	if p.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	return netlink.AddrAdd(named(name), address)
}

// IndexOf returns the index of a device.
func IndexOf(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}

// DeleteLink deletes a device by its index.
func DeleteLink(index int) error {
	return netlink.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}})
}

// Eventually runs f until it returns nil, and returns its last error after half a minute.
func Eventually(f func() error) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
