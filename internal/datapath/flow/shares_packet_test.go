package flow_test

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// Drops of one sender do not keep drops of another from being reported: they use neither its rate nor its part of the
// buffer. Lost events are counted.
func TestFlowsOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		rate uint32
		sent int
	}{
		"rate":   {rate: 64, sent: 2000},
		"buffer": {rate: 1e6, sent: 12000}, // an event takes 128 bytes of a MiB, and there is no reader
	} {
		t.Run(name, func(t *testing.T) {
			r := harness.New(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsDrops, FlowsRate: c.rate})
			other := fixtures.FromPod().Macs(fixtures.PodA2.Mac, fixtures.PodA2.Gateway).Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Udp(7, 53) // PodA's address, from PodA2's device
			for i := range c.sent {
				drop(r, t, spoofs(uint16(i)))
			}
			r.Netns.Do(func() {
				if got, err := r.Run(harness.Run{Program: bpf.ProgFromPod, Device: "blpoda2", In: other.Bytes()}); err != nil || got.Verdict != harness.VerdictDrop {
					t.Errorf("verdict %s: %v", got.Verdict, err)
				}
			})
			lost := lost(r, t)
			events := harness.ReadEvents(t, r.Watch(t))
			found := false
			for _, e := range events {
				found = found || e.Device == r.Netns.Devices["blpoda2"]
			}
			if !found {
				t.Errorf("none of %d events is the other pod's drop; lost: %v", len(events), lost)
			}
			if n := uint64(len(events)) + lost["dropped limited"] + lost["dropped full"]; n != uint64(c.sent)+1 {
				t.Errorf("%d events and %v lost of %d drops", len(events), lost, c.sent+1)
			}
		})
	}
}
