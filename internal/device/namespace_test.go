package device

import (
	"net/netip"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// inside runs f in a namespace and ends the test if it returns an error.
func inside(t testing.TB, namespace ns.NetNS, f func() error) {
	t.Helper()
	if err := namespace.Do(func(ns.NetNS) error { return f() }); err != nil {
		t.Fatal(err)
	}
}

// addVeth makes a veth pair in the calling thread's namespace, both ends up.
func addVeth(name, peer string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := netlink.NewVeth(attrs)
	veth.PeerName = peer
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	for _, end := range []string{name, peer} {
		link, err := netlink.LinkByName(end)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return nil
}

func addAddress(name, prefix string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.AddrAdd(link, podAddress(netip.MustParsePrefix(prefix)))
}

func indexOf(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}

// podEndOf reads the pod's end of the pair whose host end has the given index.
func podEndOf(hostIndex int) (podEnd, error) {
	host, err := netlink.LinkByIndex(hostIndex)
	if err != nil {
		return podEnd{}, err
	}
	return readPodEnd(host)
}
