package harness

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// A reused harness is empty and has its programs.
func TestSpareRigsAreEmpty(t *testing.T) {
	cfg := config.Datapath{EBPFRouting: true, Masquerade: true, Services: true, DSR: true, MaglevSize: 31}
	var used *Opened
	t.Run("used", func(t *testing.T) {
		r := NewServices(t, cfg)
		used = r.D
		r.Enter(t, fixtures.FlowOf(4), fixtures.ProtoTCP)
		r.Netns.Do(func() { // is counted, as spoofed
			if _, err := r.Run(Run{Program: bpf.ProgFromPod, Device: "blpoda", In: fixtures.FromPod().Ip(fixtures.PodB.V4, fixtures.External.V4).Tcp(1, 2).Bytes()}); err != nil {
				t.Error(err)
			}
		})
	})
	spares.Lock()
	kept := len(spares.all) > 0 && spares.all[len(spares.all)-1] == used
	spares.Unlock()
	if !kept {
		t.Fatal("the datapath is not kept")
	}
	for name, m := range used.Objects.ByName {
		if m.Type() == ebpf.Array || m.Type() == ebpf.PerCPUArray {
			continue
		}
		if n, err := table.Count(m); err != nil || n != 0 {
			t.Errorf("map %s has %d entries: %v", name, n, err)
		}
	}
	if drops, err := used.Drops.All(); err != nil {
		t.Error(err)
	} else {
		for _, d := range drops {
			if d.Packets != 0 {
				t.Errorf("counted: %+v", d)
			}
		}
	}
	if d := NewServices(t, cfg).D; d != used || d.Objects.Programs[bpf.ProgFromPod] == nil {
		t.Error("the next rig is another one")
	}
}
