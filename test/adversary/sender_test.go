package adversary

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// sender writes whole frames to a device.
type sender interface {
	send(frame []byte) error
}

// packetSocket is AF_PACKET, optionally with a virtio header (PACKET_VNET_HDR).
type packetSocket struct {
	fd, index int
	// protocol is what the socket says that its frames are, in network byte order; 0: what their headers say.
	protocol uint16
}

func (s packetSocket) send(frame []byte) error {
	return netlab.Sent(unix.Sendto(s.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: s.index, Protocol: s.protocol}))
}

// openPacket opens an AF_PACKET socket with one option set. The test's cleanup closes it.
func openPacket(t *testing.T, netns testbed.Netns, device string, option int) packetSocket {
	t.Helper()
	var s packetSocket
	err := netns.Do(func() (err error) {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		s.index = link.Index
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if option == 0 {
			return nil
		}
		return unix.SetsockoptInt(s.fd, unix.SOL_PACKET, option, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(s.fd) })
	return s
}

// senders transmit from a pod: through the queueing discipline; bypassing it, as frames that the socket says are ARP;
// and by AF_XDP, which says nothing about them. Not every device looks at the frames before the datapath does.
type senders struct {
	named map[string]sender
	order []string
	// offload takes frames with a virtio header, as the network card of a virtual machine does.
	offload sender
}

func openSenders(t *testing.T, netns testbed.Netns, device string) senders {
	t.Helper()
	bypass := openPacket(t, netns, device, unix.PACKET_QDISC_BYPASS)
	bypass.protocol = bits.ReverseBytes16(unix.ETH_P_ARP)
	s := senders{named: map[string]sender{
		"AF_PACKET":    openPacket(t, netns, device, 0),
		"QDISC_BYPASS": bypass,
		"AF_XDP":       openXDP(t, netns, device),
	}, order: []string{"AF_PACKET", "QDISC_BYPASS", "AF_XDP"}}
	s.offload = openPacket(t, netns, device, unix.PACKET_VNET_HDR)
	return s
}

// reportsDrops is a sender by a macvlan device: the datapath drops its frames while it sends, and the kernel reports that
// as an error of the device.
type reportsDrops struct{ sender }

func (r reportsDrops) send(frame []byte) error {
	err := r.sender.send(frame)
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// withReportedDrops are the senders for a macvlan device.
func (s senders) withReportedDrops() senders {
	named := map[string]sender{}
	for name, sender := range s.named {
		named[name] = reportsDrops{sender}
	}
	return senders{named: named, order: s.order, offload: reportsDrops{s.offload}}
}

// each sends the frames in order, once with each sender.
func (s senders) each(frames [][]byte) error {
	for _, name := range s.order {
		for i, f := range frames {
			if err := s.named[name].send(f); err != nil {
				return fmt.Errorf("send frame %d with %s: %w", i, name, err)
			}
		}
	}
	return nil
}
