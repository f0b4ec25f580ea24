package macvlan_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// announcement is the frame by which a host announces that an address has its MAC: a gratuitous ARP request (RFC 5227), or an unsolicited
// neighbour advertisement (RFC 4861, 7.2.6). The data follows.
func announcement(mac fwd.MAC, a netip.Addr, data string) []byte {
	if a.Is4() {
		return append(arpFrame(mac, broadcast, 1, mac, a, a).Bytes(), data...)
	}
	const override = 1 << 5
	header := append([]byte{136, 0, 0, 0, override, 0, 0, 0}, a.AsSlice()...)
	header = append(append(header, 2, 1), mac[:]...) // the option with the MAC
	p := fixtures.Eth(mac, fwd.MAC{0x33, 0x33, 0, 0, 0, 1}).Ipv6(a, fixtures.Addr("ff02::1")).Ttl(255).Raw(fixtures.ProtoICMPv6, header)
	p.SumOffset = 2
	return append(p.Bytes(), data...)
}

// A pod that knows the MAC of an address learns the next one when that is announced on the wire: the address has another pod, or a router
// has taken over. Not from an announcement of a local pod's address, and no data comes with it.
func TestMacvlanAnnouncements(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true}})
	pod, neighbour := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0]), n.A.AddMacvlan(t, "m2", netlab.MacvlanPods[1])
	for _, family := range fixtures.Families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			external := n.ExternalOnSwitch(family)
			netlab.Carries(t, pod.Netns, *n.External, pod.Addr(family), external)
			netlab.Carries(t, pod.Netns, neighbour.Netns, pod.Addr(family), neighbour.Addr(family))
			before := knownMAC(t, pod.Netns, neighbour.Addr(family))
			frames := capture(t, pod.Netns)

			forged := fwd.MAC{2, 9, 9, 9, 9, byte(family)}
			want := n.A.Dropped(t)
			want["to_macvlan spoofed_source"]++
			n.External.Send(t, "eth0", announcement(forged, neighbour.Addr(family), ""))
			n.AwaitDropped(t, n.A, want)

			next := fwd.MAC{2, 8, 8, 8, 8, byte(family)}
			n.External.Send(t, "eth0", announcement(next, external, "the pod must not have this"))
			for begin := time.Now(); knownMAC(t, pod.Netns, external) != net.HardwareAddr(next[:]).String(); time.Sleep(time.Millisecond) {
				if time.Since(begin) > netlab.Patience {
					t.Fatalf("the pod knows %s at %q, not at %x", external, knownMAC(t, pod.Netns, external), next)
				}
			}
			if after := knownMAC(t, pod.Netns, neighbour.Addr(family)); after != before {
				t.Errorf("the pod knows its neighbour at %s, at %s before", after, before)
			}
			for _, f := range frames() {
				if bytes.Contains(f, []byte("must not")) {
					t.Errorf("the pod received %x", f)
				}
			}
		})
	}
}

// knownMAC is the MAC by which a pod knows an address; empty if it does not.
func knownMAC(t *testing.T, pod netlab.Netns, a netip.Addr) (mac string) {
	t.Helper()
	pod.Do(t, func() error {
		entries, err := netlink.NeighList(0, 0)
		for _, e := range entries {
			if at, _ := netip.AddrFromSlice(e.IP); at.Unmap() == a {
				mac = e.HardwareAddr.String()
			}
		}
		return err
	})
	return mac
}

// capture records what a pod's eth0 receives. The function that it returns gives the frames so far.
func capture(t *testing.T, pod netlab.Netns) (frames func() [][]byte) {
	t.Helper()
	var fd int
	pod.Do(t, func() (err error) {
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		const all = 3 << 8 // ETH_P_ALL in network order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index})
	})
	t.Cleanup(func() { unix.Close(fd) })
	return func() (all [][]byte) {
		time.Sleep(10 * time.Millisecond) // the neighbour entry is written first
		buffer := make([]byte, 1<<16)
		for {
			length, _, err := unix.Recvfrom(fd, buffer, 0)
			if errors.Is(err, unix.EAGAIN) {
				return all
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, bytes.Clone(buffer[:length]))
		}
	}
}
