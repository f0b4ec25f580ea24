package device

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// newWire joins two namespaces by devices named up0 with 192.0.2.1 and .2, 2001:db8::1 and ::2, and lets
// the first probe its neighbours often.
func newWire(t *testing.T) (nodeA, nodeB ns.NetNS) {
	t.Helper()
	nodeA, nodeB = testenv.NewNetns(t), testenv.NewNetns(t)
	inside(t, nodeA, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "up0"
		veth := netlink.NewVeth(attrs)
		veth.PeerName = "up0"
		veth.PeerNamespace = netlink.NsFd(int(nodeB.Fd()))
		return netlink.LinkAdd(veth)
	})
	for i, node := range []ns.NetNS{nodeA, nodeB} {
		inside(t, node, func() error {
			link, err := netlink.LinkByName("up0")
			if err != nil {
				return err
			}
			return errors.Join(
				setDevice("ipv6", "up0", setting{"accept_dad", "0"}),
				addAddress("up0", fmt.Sprintf("192.0.2.%d/24", i+1)),
				addAddress("up0", fmt.Sprintf("2001:db8::%d/64", i+1)),
				netlink.LinkSetUp(link))
		})
	}
	inside(t, nodeA, func() error {
		for _, family := range []string{"ipv4", "ipv6"} {
			for _, s := range []setting{{"interval_probe_time_ms", "100"}, {"base_reachable_time_ms", "200"}, {"retrans_time_ms", "50"}, {"delay_first_probe_time", "0"}, {"mcast_resolicit", "1"}} {
				if _, err := SetSysctl("net/"+family+"/neigh/up0/"+s.key, s.value); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return nodeA, nodeB
}

// eventually runs f until it returns nil, and fails with its last error after half a minute.
func eventually(f func() error) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func neighbourIs(device int, addr netip.Addr, want net.HardwareAddr) error {
	found, err := Neighbours(device)
	if err != nil {
		return err
	}
	if !bytes.Equal(found[addr], want) {
		return fmt.Errorf("%s is at %q, want %q (of %v)", addr, found[addr], want, found)
	}
	return nil
}

var (
	nodeB4 = netip.MustParseAddr("192.0.2.2")
	nodeB6 = netip.MustParseAddr("2001:db8::2")
)

// macOf returns the link-layer address of up0 in a namespace.
func macOf(t *testing.T, node ns.NetNS) (mac net.HardwareAddr) {
	t.Helper()
	inside(t, node, func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		mac = link.Attrs().HardwareAddr
		return nil
	})
	return mac
}

// manageB makes A manage the addresses of B and waits until both are resolved: there is no other traffic.
func manageB(t *testing.T, nodeA, nodeB ns.NetNS, more ...netip.Addr) (up int) {
	t.Helper()
	mac := macOf(t, nodeB)
	inside(t, nodeA, func() (err error) {
		if up, err = indexOf("up0"); err != nil {
			return err
		}
		if err := ManageNeighbours(up, append(more, nodeB4, nodeB6)); err != nil {
			return err
		}
		return eventually(func() error { return errors.Join(neighbourIs(up, nodeB4, mac), neighbourIs(up, nodeB6, mac)) })
	})
	return up
}

func TestManageNeighbours(t *testing.T) {
	nodeA, nodeB := newWire(t)
	absent := netip.MustParseAddr("192.0.2.77")
	fixed := netip.MustParseAddr("192.0.2.88")
	fixedMAC := net.HardwareAddr{2, 0, 0, 0, 0, 0x88}
	inside(t, nodeA, func() error {
		up, err := indexOf("up0")
		if err != nil {
			return err
		}
		return netlink.NeighAdd(&netlink.Neigh{LinkIndex: up, IP: fixed.AsSlice(), HardwareAddr: fixedMAC, State: netlink.NUD_PERMANENT})
	})
	up := manageB(t, nodeA, nodeB, absent, fixed)
	inside(t, nodeA, func() error {
		// What does not answer is not reported, what an administrator set stays what it was.
		if err := errors.Join(neighbourIs(up, absent, nil), neighbourIs(up, fixed, fixedMAC)); err != nil {
			return err
		}
		// What is not wanted any more goes, what others made stays.
		for range 2 {
			if err := ManageNeighbours(up, []netip.Addr{nodeB6}); err != nil {
				return err
			}
			entries, err := dumpNeighbours(unix.AF_UNSPEC, up)
			if err != nil {
				return err
			}
			managed := 0
			for _, entry := range entries {
				if entry.protocol == Protocol {
					managed++
					if entry.addr != nodeB6 || entry.extFlags&netlink.NTF_EXT_MANAGED == 0 {
						t.Errorf("an entry of ours is %+v", entry)
					}
				}
			}
			if managed != 1 {
				t.Errorf("%d entries of ours, want 1", managed)
			}
		}
		return neighbourIs(up, fixed, fixedMAC)
	})
}

// The kernel notices by itself that the other side has another link-layer address. It looks every five
// seconds, which only the first namespace could change, so this test and the next take that long.
func TestManagedNeighbourFollowsTheOtherSide(t *testing.T) {
	t.Parallel()
	nodeA, nodeB := newWire(t)
	up := manageB(t, nodeA, nodeB)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 2}
	inside(t, nodeB, func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(link, mac)
	})
	inside(t, nodeA, func() error {
		return eventually(func() error { return errors.Join(neighbourIs(up, nodeB4, mac), neighbourIs(up, nodeB6, mac)) })
	})
}

func TestManagedNeighbourThatIsGoneIsNotReported(t *testing.T) {
	t.Parallel()
	nodeA, nodeB := newWire(t)
	up := manageB(t, nodeA, nodeB)
	mac := macOf(t, nodeB)
	inside(t, nodeB, func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		return netlink.AddrDel(link, podAddress(netip.PrefixFrom(nodeB4, 24)))
	})
	inside(t, nodeA, func() error {
		if err := eventually(func() error { return neighbourIs(up, nodeB4, nil) }); err != nil {
			return err
		}
		return eventually(func() error { return neighbourIs(up, nodeB6, mac) }) // which may miss a few answers on a busy machine
	})
}

func TestManageNeighboursOfVanishedDevice(t *testing.T) {
	inside(t, testenv.NewNetns(t), func() error {
		if err := ManageNeighbours(4711, []netip.Addr{netip.MustParseAddr("192.0.2.2")}); err == nil {
			t.Error("no error")
		}
		return ManageNeighbours(4711, nil)
	})
}

func TestSetNeighbour(t *testing.T) {
	inside(t, newNode(t), func() error {
		up, err := indexOf("up0")
		if err != nil {
			return err
		}
		for _, mac := range []net.HardwareAddr{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}} {
			for _, addr := range []netip.Addr{pod4.Addr(), pod6.Addr()} {
				if err := errors.Join(SetNeighbour(up, addr, mac), neighbourIs(up, addr, mac)); err != nil {
					t.Error(err)
				}
			}
		}
		// Managing others does not drop permanent entries.
		if err := ManageNeighbours(up, nil); err != nil {
			return err
		}
		return neighbourIs(up, pod4.Addr(), net.HardwareAddr{2, 0, 0, 0, 0, 2})
	})
}

func TestParseNeighbourRefusesGarbage(t *testing.T) {
	for _, message := range [][]byte{nil, {unix.AF_INET}, make([]byte, 12), append([]byte{unix.AF_INET}, make([]byte, 11)...),
		append(append([]byte{unix.AF_INET}, make([]byte, 11)...), 8, 0, 1, 0, 10)} {
		if entry, ok := parseNeighbour(message); ok {
			t.Errorf("%v became %+v", message, entry)
		}
	}
}
