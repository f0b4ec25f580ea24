package datapath

import (
	"testing"
)

// However many drops of one sender there are, those of another one are told of: neither its rate nor the place in the buffer is used up for
// others. What is not told is counted.
func TestFlowsOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		rate uint32
		sent int
	}{
		"rate":   {rate: 64, sent: 2000},
		"buffer": {rate: 1e6, sent: 12000}, // an event takes 128 bytes of a MiB, and nobody reads
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{EBPFRouting: true, Flows: FlowsDrops, FlowsRate: c.rate})
			other := fromPod().macs(podA2.mac, podA2.gateway).ipv4(podA.v4, podB.v4).udp(7, 53) // podA's address, from podA2's device
			for i := range c.sent {
				r.drop(t, spoofs(uint16(i)))
			}
			r.stage.do(func() {
				if got, err := r.run(run{program: bpfProgFromPod, device: "blpoda2", in: other.bytes()}); err != nil || got.verdict != verdictDrop {
					t.Errorf("verdict %s: %v", got.verdict, err)
				}
			})
			lost := r.lost(t)
			events := told(t, r.watch(t))
			found := false
			for _, e := range events {
				found = found || e.Device == r.stage.devices["blpoda2"]
			}
			if !found {
				t.Errorf("none of %d events tells of the other pod's drop; lost: %v", len(events), lost)
			}
			if n := uint64(len(events)) + lost["dropped limited"] + lost["dropped full"]; n != uint64(c.sent)+1 {
				t.Errorf("%d events and %v lost of %d drops", len(events), lost, c.sent+1)
			}
		})
	}
}
