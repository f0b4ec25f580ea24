package nodeport

import (
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
)

// arrived is how many frames have arrived.
func (m *member) arrived(t *testing.T) uint64 {
	t.Helper()
	n, err := m.sink.Arrived()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Every frame of a small load comes through a node that only forwards, in both placements and from one to the other,
// and TCP works beside that.
func TestPlainForwarding(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) { testPlainForwarding(t, false) })
	t.Run("IPv6", func(t *testing.T) { testPlainForwarding(t, true) })
}

func testPlainForwarding(t *testing.T, ipv6 bool) {
	testenv.Root(t)
	c := network.Forwarding
	if why := c.Unsupported(); why != "" {
		testenv.Missing(t, why)
	}
	p, err := New(round.Options{Networks: []string{"node"}, IPv6: ipv6})
	if err != nil {
		testenv.Missing(t, err.Error())
	}
	m, err := p.open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Errorf("take down: %v", err)
		}
	}()
	for _, placement := range []result.Placement{result.ForwarderCore, result.OneCore, result.ForwarderCore} {
		if err := m.arrange(placement, countPackets); err != nil {
			t.Fatal(err)
		}
		// No more at once than a ring of 256 frames holds: who empties it may have to wait for a processor.
		const count, most = 2000, 100
		busy, before := m.devices.forwarder.cpuTime(), m.arrived(t)
		offered := uint64(0)
		for range count / most {
			o, err := m.offer(t.Context(), packetgen.Load{Rate: 20000, For: 5 * time.Second, Count: most})
			if err != nil {
				t.Fatal(err)
			}
			// A busy machine keeps the generator from making all of them.
			if o.Frames == 0 || o.Frames > most {
				t.Errorf("%s: %d frames, up to %d wanted", placement, o.Frames, most)
			}
			offered += o.Frames
			for end := time.Now().Add(30 * time.Second); m.arrived(t)-before < offered && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
		if n := m.arrived(t) - before; n != offered {
			t.Errorf("%s: %d of %d frames arrived", placement, n, offered)
		}
		if busy = m.devices.forwarder.cpuTime() - busy; (busy > 0) != (placement == result.ForwarderCore) {
			t.Errorf("%s: the forwarding node's threads used %v", placement, busy)
		}
	}
	used := m.cpuTime()
	for _, cell := range p.Cells {
		f := cell.Workload.(figure)
		if f.packets() {
			continue
		}
		s := m.Sample(t.Context(), round.Cell{Workload: f, Path: cell.Path, Placement: cell.Placement, Procs: 1}, 100*time.Millisecond)
		if s.Error != "" || s.Values[result.Rate] <= 0 {
			t.Errorf("%s: %v, %s", f.info.Name, s.Values, s.Error)
		}
	}
	if m.cpuTime() < used {
		t.Errorf("the threads' time went back from %v to %v when they ended", used, m.cpuTime())
	}
}
