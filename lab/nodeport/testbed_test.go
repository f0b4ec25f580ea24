package nodeport

import (
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/measure"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/result"
)

// arrived is how many frames have arrived.
func (b *Testbed) arrived(t *testing.T) uint64 {
	t.Helper()
	n, err := b.sink.Arrived()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Every frame of a small load comes through a node that only forwards, in both placements and from one to the other, and
// TCP works beside that.
func TestPlainForwarding(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) { testPlainForwarding(t, false) })
	t.Run("IPv6", func(t *testing.T) { testPlainForwarding(t, true) })
}

func testPlainForwarding(t *testing.T, ipv6 bool) {
	testenv.Root(t)
	c := network.Forwarding{}
	if why := c.Unsupported(); why != "" {
		testenv.Missing(t, why)
	}
	p, err := NewPlan(Choice{Networks: []string{"node"}, IPv6: ipv6})
	if err != nil {
		testenv.Missing(t, err.Error())
	}
	b, err := openTestbed(t.Context(), c, p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Errorf("take down: %v", err)
		}
	}()
	for _, placement := range []result.Placement{result.ForwarderCore, result.OneCore, result.ForwarderCore} {
		if err := b.arrange(placement, countPackets); err != nil {
			t.Fatal(err)
		}
		// No more at once than a ring of 256 frames holds: who empties it may have to wait for a processor.
		const count, most = 2000, 100
		busy, before := b.devices.forwarder.cpuTime(), b.arrived(t)
		offered := uint64(0)
		for range count / most {
			o, err := b.offer(t.Context(), packetgen.Load{Rate: 20000, For: 5 * time.Second, Count: most})
			if err != nil {
				t.Fatal(err)
			}
			// A busy machine keeps the generator from making all of them.
			if o.Frames == 0 || o.Frames > most {
				t.Errorf("%s: %d frames, up to %d wanted", placement, o.Frames, most)
			}
			offered += o.Frames
			for end := time.Now().Add(30 * time.Second); b.arrived(t)-before < offered && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
		if n := b.arrived(t) - before; n != offered {
			t.Errorf("%s: %d of %d frames arrived", placement, n, offered)
		}
		if busy = b.devices.forwarder.cpuTime() - busy; (busy > 0) != (placement == result.ForwarderCore) {
			t.Errorf("%s: the forwarding node's threads used %v", placement, busy)
		}
	}
	used := b.cpuTime()
	for _, cell := range p.Cells {
		f := cell.Workload.(figure)
		if f.packets {
			continue
		}
		s := (&subject{b}).Sample(t.Context(), measure.Cell{Workload: f, Path: cell.Path, Placement: cell.Placement, Procs: 1}, 100*time.Millisecond)
		if s.Error != "" || s.Values[result.Rate] <= 0 {
			t.Errorf("%s: %v, %s", f.info.Name, s.Values, s.Error)
		}
	}
	if b.cpuTime() < used {
		t.Errorf("the threads' time went back from %v to %v when they ended", used, b.cpuTime())
	}
}
