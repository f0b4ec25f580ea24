package nodeport

import (
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/contender"
	"github.com/beeline-cni/beeline/lab/measure"
	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/result"
)

// Every frame of a small load comes through a node that only forwards, in both placements and from one to the other, and
// TCP works beside that.
func TestPlainForwarding(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) { testPlainForwarding(t, false) })
	t.Run("IPv6", func(t *testing.T) { testPlainForwarding(t, true) })
}

func testPlainForwarding(t *testing.T, ipv6 bool) {
	testenv.Root(t)
	c := contender.Forwarding{}
	if why := c.Unsupported(); why != "" {
		testenv.Missing(t, why)
	}
	p, err := NewPlan(Choice{Contenders: []string{"node"}, IPv6: ipv6})
	if err != nil {
		testenv.Missing(t, err.Error())
	}
	b, err := openBed(t.Context(), c, p)
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
		const count = 2000
		o, err := b.offer(t.Context(), packetgen.Load{Rate: 20000, For: 5 * time.Second, Count: count})
		if err != nil {
			t.Fatal(err)
		}
		// A busy machine keeps the generator from making all of them.
		if o.Frames == 0 || o.Frames > count || o.arrived != o.Frames {
			t.Errorf("%s: %d of %d frames arrived, up to %d wanted", placement, o.arrived, o.Frames, count)
		}
		if threaded := o.busy > 0; threaded != (placement == result.ForwarderCore) {
			t.Errorf("%s: the forwarding node's threads used %v", placement, o.busy)
		}
	}
	used := b.cpuTime()
	for _, cell := range p.Cells {
		f := cell.Workload.(figure)
		if f.packets {
			continue
		}
		s := (&entrant{b}).Sample(t.Context(), measure.Cell{Workload: f, Path: cell.Path, Placement: cell.Placement, Procs: 1}, 100*time.Millisecond)
		if s.Error != "" || s.Values[result.Rate] <= 0 {
			t.Errorf("%s: %v, %s", f.info.Name, s.Values, s.Error)
		}
	}
	if b.cpuTime() < used {
		t.Errorf("the threads' time went back from %v to %v when they ended", used, b.cpuTime())
	}
}
