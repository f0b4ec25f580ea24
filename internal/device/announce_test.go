package device

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/macvlan"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// The addresses of a macvlan device are announced on the wire by an ARP request for the own address (RFC 5227) and a neighbour
// advertisement to all nodes (RFC 4861), with its MAC.
func TestConfigureAnnounces(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	mac := macvlan.NewMAC()
	var wire int
	devicetest.Inside(t, node, func() error {
		parent, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		if _, err := macvlan.Create(pod, macvlan.Spec{Parent: parent, Name: "eth0", MAC: mac}); err != nil {
			return err
		}
		wire, err = capture("wire")
		return err
	})
	defer unix.Close(wire)
	cfg := PodConfig{Addresses: []netip.Prefix{devicetest.Pod4, devicetest.Pod6}, Announce: true}
	if err := (podEnd{}).Configure(pod.Path(), "eth0", cfg); err != nil {
		t.Fatal(err)
	}
	v4, v6 := devicetest.Pod4.Addr().AsSlice(), devicetest.Pod6.Addr().AsSlice()
	arp := bytes.Join([][]byte{{0, 1, 8, 0, 6, 4, 0, 1}, mac, v4, {0, 0, 0, 0, 0, 0}, v4}, nil)
	broadcast := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	const icmp, advertisement = 14 + 40, 136
	seen4, seen6 := false, false
	frame := make([]byte, 2000)
	for begin := time.Now(); !(seen4 && seen6); {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("ARP announcement: %v, advertisement: %v", seen4, seen6)
		}
		n, _, err := unix.Recvfrom(wire, frame, 0)
		if err != nil {
			continue // nothing in time
		}
		got := frame[:n]
		if !bytes.Equal(got[6:12], mac) {
			continue
		}
		seen4 = seen4 || bytes.HasPrefix(got[14:], arp[:18]) && bytes.Equal(got[14+24:14+28], v4) && bytes.Equal(got[:6], broadcast)
		seen6 = seen6 || n >= icmp+24 && got[icmp] == advertisement && bytes.Equal(got[icmp+8:icmp+24], v6) && bytes.Equal(got[:6], []byte{0x33, 0x33, 0, 0, 0, 1})
	}
}

// capture opens a socket that receives the frames of a device.
func capture(name string) (int, error) {
	index, err := devicetest.IndexOf(name)
	if err != nil {
		return -1, err
	}
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
		return -1, err
	}
	return fd, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100000})
}
