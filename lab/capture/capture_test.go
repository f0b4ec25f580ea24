package capture

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// TestCapture finds a marker, and addresses, in packets that a node sends and in nothing else, nor where they arrive.
func TestCapture(t *testing.T) {
	testenv.Root(t)
	lab, err := testbed.Up(t.Context(), testbed.Options{Name: "t-capture"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Errorf("take down: %v", err)
		}
	})
	marker, to := []byte("a marker of some length"), lab.Node(1).Addresses[0].Addr()
	var listener net.PacketConn // without it, the kernel would send the payload back in an error
	err = lab.Node(1).Do(func() (err error) {
		listener, err = net.ListenPacket("udp", netip.AddrPortFrom(to, 9).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	send := func(wanted For, payload []byte) Seen {
		t.Helper()
		stop, err := Start(lab.Node(0).Netns, testbed.Uplink, wanted)
		if err != nil {
			t.Fatal(err)
		}
		err = lab.Node(0).Do(func() error {
			conn, err := net.Dial("udp", netip.AddrPortFrom(to, 9).String())
			if err == nil {
				_, err = conn.Write(payload)
				conn.Close()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		seen, err := stop()
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	own := []netip.Prefix{netip.PrefixFrom(to, to.BitLen())}
	with := send(For{marker, own}, append(bytes.Repeat([]byte("x"), 100), marker...))
	if with.Marked == 0 || with.Inside == 0 || with.Frames < with.Marked || with.Bytes[Flow{unix.IPPROTO_UDP, 9}] < 100+len(marker) {
		t.Errorf("with the marker: %+v", with)
	}
	without := send(For{marker, []netip.Prefix{testbed.PodNetworkIPv4}}, marker[1:])
	if without.Marked != 0 || without.Inside != 0 || without.Bytes[Flow{unix.IPPROTO_UDP, 9}] == 0 {
		t.Errorf("without it: %+v", without)
	}
	back, err := Start(lab.Node(1).Netns, testbed.Uplink, For{marker, own})
	if err != nil {
		t.Fatal(err)
	}
	send(For{}, marker)
	if seen, err := back(); err != nil || seen.Marked != 0 {
		t.Errorf("what the other node received: %+v, %v", seen, err)
	}
	if _, err := Start(lab.Node(0).Netns, "missing", For{}); err == nil {
		t.Error("a device that does not exist is captured")
	}
}
