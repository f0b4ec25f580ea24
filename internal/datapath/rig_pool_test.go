package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
)

// Rigs are attached to nothing, so nobody but a test's own calls meets their programs: when a test is over, the next one of the same
// configuration can have the datapath, with all maps cleared, and the verifier has nothing to do.

// spares are datapaths that no test has, the latest last.
var spares struct {
	sync.Mutex
	all []*Datapath
}

// sparesMax bounds what spares take: each has maps that are allocated at once.
const sparesMax = 6

// lendDatapath gives a datapath with empty maps and without programs or with some, until the end of the test.
func lendDatapath(tb testing.TB, cfg Config) *Datapath {
	tb.Helper()
	d := takeSpare(cfg)
	if d == nil {
		cfg.Root = bpffs(tb) // gone when it is spare: rigs have no pins
		var err error
		if d, err = open(cfg, nil, slog.New(slog.DiscardHandler)); err != nil {
			tb.Fatalf("open datapath: %+v", err)
		}
	}
	tb.Cleanup(func() {
		if tb.Failed() || !keepSpare(d) {
			if err := d.Close(); err != nil {
				tb.Errorf("close datapath: %v", err)
			}
		}
	})
	return d
}

func takeSpare(cfg Config) *Datapath {
	spares.Lock()
	defer spares.Unlock()
	for i, d := range spares.all {
		have := d.config
		have.Root = cfg.Root
		if have == cfg {
			spares.all = append(spares.all[:i:i], spares.all[i+1:]...)
			return d
		}
	}
	return nil
}

// keepSpare clears the datapath for others; false where that is not possible or takes longer than it saves.
func keepSpare(d *Datapath) bool {
	if d.config.Flows != FlowsOff { // there is no way to clear a ring buffer
		return false
	}
	for _, m := range d.objects.byName {
		if clearMap(m) != nil {
			return false
		}
	}
	// What the tables remember of the maps is gone with it, and so is what a test has set.
	if d.Sockets.close() != nil {
		return false
	}
	d.setTables()
	d.stackSends.Store(false)
	spares.Lock()
	defer spares.Unlock()
	if len(spares.all) == sparesMax {
		if spares.all[0].Close() != nil {
			return false
		}
		spares.all = spares.all[1:]
	}
	spares.all = append(spares.all, d)
	return true
}

// clearedMax is how many entries of a map are worth clearing.
const clearedMax = 5000

var errManyEntries = errors.New("the map has many entries")

// clearMap takes all entries out of a map, or zeroes those that are always there.
func clearMap(m *ebpf.Map) error {
	switch m.Type() {
	case ebpf.SkStorage: // goes with the sockets
		return nil
	case ebpf.RingBuf: // without flows nothing is in it
		return nil
	case ebpf.Array, ebpf.PerCPUArray:
		return zeroArray(m)
	}
	for range clearedMax {
		key, err := m.NextKeyBytes(nil)
		if err != nil || key == nil {
			return err
		}
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("clear map: %w", err)
		}
	}
	return errManyEntries
}

func zeroArray(m *ebpf.Map) error {
	var zero any = make([]byte, m.ValueSize())
	if m.Type() == ebpf.PerCPUArray {
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		all := make([][]byte, cpus)
		for i := range all {
			all[i] = make([]byte, m.ValueSize())
		}
		zero = all
	}
	for i := range m.MaxEntries() {
		if err := m.Put(i, zero); err != nil {
			return fmt.Errorf("clear array: %w", err)
		}
	}
	return nil
}

// A rig that was used is empty for the next test, and has its programs.
func TestSpareRigsAreEmpty(t *testing.T) {
	cfg := Config{EBPFRouting: true, Masquerade: true, Services: true, DSR: true, MaglevSize: 31}
	var used *Datapath
	t.Run("used", func(t *testing.T) {
		r := newServiceRig(t, cfg)
		used = r.d
		r.enter(t, flowOf(4), protoTCP)
		r.stage.do(func() { // is counted, as spoofed
			if _, err := r.run(run{program: bpfProgFromPod, device: "blpoda", in: fromPod().ip(podB.v4, world.v4).tcp(1, 2).bytes()}); err != nil {
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
	for name, m := range used.objects.byName {
		if m.Type() == ebpf.Array || m.Type() == ebpf.PerCPUArray {
			continue
		}
		if n, err := countEntries(m); err != nil || n != 0 {
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
	if d := newServiceRig(t, cfg).d; d != used || d.objects.programs[bpfProgFromPod] == nil {
		t.Error("the next rig is another one")
	}
}
