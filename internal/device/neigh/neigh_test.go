package neigh

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// newWire joins two namespaces by devices named up0 with 192.0.2.1 and .2, 2001:db8::1 and ::2. The first probes its neighbours often.
func newWire(t *testing.T) (nodeA, nodeB ns.NetNS) {
	t.Helper()
	nodeA, nodeB = testenv.NewNetns(t), testenv.NewNetns(t)
	devicetest.Inside(t, nodeA, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "up0"
		veth := netlink.NewVeth(attrs)
		veth.PeerName = "up0"
		veth.PeerNamespace = netlink.NsFd(int(nodeB.Fd()))
		return netlink.LinkAdd(veth)
	})
	for i, node := range []ns.NetNS{nodeA, nodeB} {
		devicetest.Inside(t, node, func() error {
			link, err := netlink.LinkByName("up0")
			if err != nil {
				return err
			}
			return errors.Join(
				sysctl.SetDevice("ipv6", "up0", "accept_dad=0"),
				devicetest.AddAddress("up0", fmt.Sprintf("192.0.2.%d/24", i+1)),
				devicetest.AddAddress("up0", fmt.Sprintf("2001:db8::%d/64", i+1)),
				netlink.LinkSetUp(link))
		})
	}
	devicetest.Inside(t, nodeA, func() error {
		for _, family := range []string{"ipv4", "ipv6"} {
			for key, value := range map[string]string{
				"interval_probe_time_ms": "100", "base_reachable_time_ms": "200", "retrans_time_ms": "50", "delay_first_probe_time": "0", "mcast_resolicit": "1",
			} {
				if _, err := sysctl.Set("net/"+family+"/neigh/up0/"+key, value); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return nodeA, nodeB
}

func neighbourIs(device int, addr netip.Addr, want net.HardwareAddr) error {
	macs, err := List(device)
	if err != nil {
		return err
	}
	if !bytes.Equal(macs[addr], want) {
		return fmt.Errorf("%s is at %q, want %q (of %v)", addr, macs[addr], want, macs)
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
	devicetest.Inside(t, node, func() error {
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
	devicetest.Inside(t, nodeA, func() (err error) {
		if up, err = devicetest.IndexOf("up0"); err != nil {
			return err
		}
		if err := Manage(up, append(more, nodeB4, nodeB6)); err != nil {
			return err
		}
		return devicetest.Eventually(func() error { return errors.Join(neighbourIs(up, nodeB4, mac), neighbourIs(up, nodeB6, mac)) })
	})
	return up
}

func TestManage(t *testing.T) {
	nodeA, nodeB := newWire(t)
	absent := netip.MustParseAddr("192.0.2.77")
	fixed := netip.MustParseAddr("192.0.2.88")
	fixedMAC := net.HardwareAddr{2, 0, 0, 0, 0, 0x88}
	devicetest.Inside(t, nodeA, func() error {
		up, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		return netlink.NeighAdd(&netlink.Neigh{LinkIndex: up, IP: fixed.AsSlice(), HardwareAddr: fixedMAC, State: netlink.NUD_PERMANENT})
	})
	up := manageB(t, nodeA, nodeB, absent, fixed)
	devicetest.Inside(t, nodeA, func() error {
		// An unresolved address is not listed, and a permanent entry stays.
		if err := errors.Join(neighbourIs(up, absent, nil), neighbourIs(up, fixed, fixedMAC)); err != nil {
			return err
		}
		// Entries that are no longer wanted go, entries of others stay.
		for range 2 {
			if err := Manage(up, []netip.Addr{nodeB6}); err != nil {
				return err
			}
			entries, err := dump(unix.AF_UNSPEC, up)
			if err != nil {
				return err
			}
			managed := 0
			for _, entry := range entries {
				if entry.Protocol == rtnl.Protocol {
					managed++
					if entry.Addr != nodeB6 || entry.ExtFlags&netlink.NTF_EXT_MANAGED == 0 {
						t.Errorf("a Beeline entry is %+v", entry)
					}
				}
			}
			if managed != 1 {
				t.Errorf("%d Beeline entries, want 1", managed)
			}
		}
		return neighbourIs(up, fixed, fixedMAC)
	})
}

// The kernel notices that the neighbour has another link-layer address. It probes every five seconds, which only the initial namespace
// could change, so this test and the next take that long.
func TestManagedNeighbourChangesAddress(t *testing.T) {
	t.Parallel()
	nodeA, nodeB := newWire(t)
	up := manageB(t, nodeA, nodeB)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 2}
	devicetest.Inside(t, nodeB, func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(link, mac)
	})
	devicetest.Inside(t, nodeA, func() error {
		return devicetest.Eventually(func() error { return errors.Join(neighbourIs(up, nodeB4, mac), neighbourIs(up, nodeB6, mac)) })
	})
}

func TestManagedNeighbourThatFailsIsNotListed(t *testing.T) {
	t.Parallel()
	nodeA, nodeB := newWire(t)
	up := manageB(t, nodeA, nodeB)
	mac := macOf(t, nodeB)
	devicetest.Inside(t, nodeB, func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		return netlink.AddrDel(link, &netlink.Addr{IPNet: rtnl.IPNet(netip.PrefixFrom(nodeB4, 24))})
	})
	devicetest.Inside(t, nodeA, func() error {
		if err := devicetest.Eventually(func() error { return neighbourIs(up, nodeB4, nil) }); err != nil {
			return err
		}
		return devicetest.Eventually(func() error { return neighbourIs(up, nodeB6, mac) }) // may miss a few replies on a busy machine
	})
}

func TestManageOnDeletedDevice(t *testing.T) {
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		if err := Manage(4711, []netip.Addr{netip.MustParseAddr("192.0.2.2")}); err == nil {
			t.Error("no error")
		}
		return Manage(4711, nil)
	})
}

func TestSetPermanent(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		up, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		for _, mac := range []net.HardwareAddr{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}} {
			for _, addr := range []netip.Addr{devicetest.Pod4.Addr(), devicetest.Pod6.Addr()} {
				if err := errors.Join(SetPermanent(up, addr, mac), neighbourIs(up, addr, mac)); err != nil {
					t.Error(err)
				}
			}
		}
		// Managing others does not drop permanent entries.
		if err := Manage(up, nil); err != nil {
			return err
		}
		return neighbourIs(up, devicetest.Pod4.Addr(), net.HardwareAddr{2, 0, 0, 0, 0, 2})
	})
}

func TestParseRejectsGarbage(t *testing.T) {
	for _, message := range [][]byte{nil, {unix.AF_INET}, make([]byte, 12), append([]byte{unix.AF_INET}, make([]byte, 11)...),
		append(append([]byte{unix.AF_INET}, make([]byte, 11)...), 8, 0, 1, 0, 10)} {
		if entry, ok := Parse(message); ok {
			t.Errorf("%v became %+v", message, entry)
		}
	}
}
