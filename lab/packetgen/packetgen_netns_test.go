package packetgen

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// wire is a lab of two nodes of whose second the frames come: what a generator at n2's end of the pair makes arrives at
// n1 as from a card.
type wire struct {
	lab    *testbed.Lab
	frames Frames
}

func newWire(t *testing.T, six bool) wire {
	t.Helper()
	testenv.Root(t)
	const name = "t-packetgen"
	lab, err := testbed.Up(t.Context(), testbed.Options{Name: name, Nodes: 2, IPv6: six})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Errorf("take down: %v", err)
		}
	})
	w := wire{lab: lab}
	for i, mac := range []*net.HardwareAddr{&w.frames.DestinationMAC, &w.frames.SourceMAC} {
		err := lab.Node(i).Do(func() error {
			device, err := net.InterfaceByName(testbed.Uplink)
			if err == nil {
				*mac = device.HardwareAddr
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	source, family := "198.18.0.1", 0
	if six {
		source, family = "fd00::ffff:1", 1
	}
	w.frames.Source = netip.AddrPortFrom(netip.MustParseAddr(source), 2000)
	w.frames.Destination = netip.AddrPortFrom(lab.Node(0).Addresses[family].Addr(), 30000)
	w.frames.Flows, w.frames.Ports = 1000, 10
	if _, err := lab.Node(0).Output(t.Context(), "ethtool", "-K", testbed.Uplink, "gro", "on"); err != nil {
		if _, found := exec.LookPath("ethtool"); found != nil {
			testenv.Missing(t, found.Error())
		}
		t.Fatal(err)
	}
	return w
}

func (w wire) generator(t *testing.T) *Generator {
	t.Helper()
	g, err := NewGenerator(w.lab.Node(1).On(runtime.NumCPU()-1), testbed.Uplink, w.frames)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// arrived waits until the sink has counted so many, or for long enough.
func arrived(t *testing.T, s *Sink, want uint64) uint64 {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		n, err := s.Arrived()
		if err != nil {
			t.Fatal(err)
		}
		if n >= want || time.Now().After(deadline) {
			return n
		}
	}
}

// All frames of a small load arrive, at either kind of sink, and no more.
func TestEveryFrameArrives(t *testing.T) {
	for name, test := range map[string]struct {
		six  bool
		sink func(w wire) (*Sink, error)
	}{
		"XDP, IPv4": {false, func(w wire) (*Sink, error) {
			return CountOnWire(w.lab.Node(0).Netns, testbed.Uplink, w.frames.Destination, "")
		}},
		"XDP, IPv6": {true, func(w wire) (*Sink, error) {
			return CountOnWire(w.lab.Node(0).Netns, testbed.Uplink, w.frames.Destination, "")
		}},
		"tc, IPv4": {false, func(w wire) (*Sink, error) {
			return CountInStack(w.lab.Node(0).Netns, testbed.Uplink, w.frames.Destination)
		}},
		"tc, IPv6": {true, func(w wire) (*Sink, error) {
			return CountInStack(w.lab.Node(0).Netns, testbed.Uplink, w.frames.Destination)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, test.six)
			sink, err := test.sink(w)
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			g := w.generator(t)
			// Paced, and no more at once than a ring of 256 frames holds: who empties it may have to wait for a
			// processor.
			const count, most = 2500, 125
			var all Offered
			for want := uint64(most); want <= count; want += most {
				offered, err := g.Offer(t.Context(), Load{Rate: 50000, For: 10 * time.Second, Count: most})
				if err != nil {
					t.Fatal(err)
				}
				if offered.Frames != most {
					t.Errorf("offered %d frames, want %d", offered.Frames, most)
				}
				if n := arrived(t, sink, want); n != want {
					t.Fatalf("%d frames arrived of %d", n, want)
				}
				all.Frames, all.Took = all.Frames+offered.Frames, all.Took+offered.Took
			}
			if all.Rate() > 60000 {
				t.Errorf("offered at %.0f frames per second, asked for 50000", all.Rate())
			}
		})
	}
}

// What sockets receive is what was meant: every flow is one, and the stack finds no fault with the checksums.
func TestFramesAreWhatSocketsReceive(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) { testSocket(t, false) })
	t.Run("IPv6", func(t *testing.T) { testSocket(t, true) })
}

func testSocket(t *testing.T, six bool) {
	w := newWire(t, six)
	// The answers' way, without which the stack may refuse a source.
	if six {
		if _, err := w.lab.Node(0).Output(t.Context(), "ip", "-6", "route", "add", "fd00::/64", "dev", testbed.Uplink); err != nil {
			t.Fatal(err)
		}
	}
	var conn *net.UDPConn
	err := w.lab.Node(0).Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(w.frames.Destination))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	g := w.generator(t)
	if _, err := g.Offer(t.Context(), Load{Rate: 10000, For: 10 * time.Second, Count: 100}); err != nil {
		t.Fatal(err)
	}
	seen := map[netip.AddrPort]int{}
	buffer := make([]byte, 2048)
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	for range 100 {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			t.Fatalf("after %d datagrams: %v", len(seen), err)
		}
		if want := payload(w.frames); n != want {
			t.Fatalf("datagram of %d bytes, want %d", n, want)
		}
		seen[netip.AddrPortFrom(from.Addr().Unmap(), from.Port())]++
	}
	conn.Close()
	if len(seen) != 100 {
		t.Errorf("%d flows, want 100", len(seen))
	}
	last := netip.AddrPortFrom(netip.MustParseAddr(map[bool]string{false: "198.18.0.10", true: "fd00::ffff:a"}[six]), 2009)
	if seen[last] != 1 {
		t.Errorf("no datagram of flow 99, %s, among %v", last, seen)
	}
}

func payload(f Frames) int {
	if f.Source.Addr().Is4() {
		return length4 - ethernetHeader - ipv4Header - udpHeader
	}
	return length6 - ethernetHeader - ipv6Header - udpHeader
}
