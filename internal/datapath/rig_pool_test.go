package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/beeline-cni/beeline/internal/device"
)

// When a test is over, the next one of the same configuration can have its datapath, taken off all devices and with all maps cleared:
// the verifier, whose time would be most of what tests take, has nothing to do.

// spares are datapaths that no test has, the latest last.
var spares struct {
	sync.Mutex
	all []*opened
}

// sparesMax bounds what spares take: each has maps that are allocated at once. A network has two, and everyConfig eight configurations.
const sparesMax = 16

// lendDatapath gives a datapath with empty maps and without programs or with some, until the end of the test.
func lendDatapath(tb testing.TB, cfg Config) *opened {
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

func takeSpare(cfg Config) *opened {
	spares.Lock()
	defer spares.Unlock()
	for i, d := range spares.all {
		have := d.objects.config
		have.Root = cfg.Root
		if have == cfg {
			spares.all = append(spares.all[:i:i], spares.all[i+1:]...)
			return d
		}
	}
	return nil
}

// keepSpare clears the datapath for others; false where that is not possible or takes longer than it saves.
func keepSpare(d *opened) bool {
	for _, m := range d.objects.byName {
		if clearMap(m) != nil {
			return false
		}
	}
	// What the tables remember of the maps is gone with it, and so is what a test has set.
	if d.Sockets.close() != nil {
		return false
	}
	d.objects.log = slog.New(slog.DiscardHandler) // the test's has ended
	d.Datapath = Assemble(d.objects)
	if d.Sessions.divide() != nil {
		return false
	}
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

// borrow is open where nothing is pinned yet below cfg.Root. With giveBack the next test can have the datapath.
func borrow(cfg Config, programs []string, log *slog.Logger) (*opened, error) {
	d := takeSpare(cfg)
	if d == nil {
		return open(cfg, programs, log)
	}
	var err error
	if d.objects.tcx, err = haveTCX(); err != nil { // a test may have set it
		return nil, errors.Join(err, d.Close())
	}
	d.objects.config, d.objects.log, d.objects.fresh, d.objects.committed = cfg, log, slices.Clone(pinnedMaps), false
	d.objects.pins.root, d.objects.pins.before = cfg.Root, nil
	d.Datapath = Assemble(d.objects)
	for _, dir := range []string{mapDir(cfg.Root), linkDir(cfg.Root)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	if err := d.use(programs...); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// giveBack is unload for a datapath that was borrowed. It must be called where its devices are.
func giveBack(d *opened) error {
	_, err := d.Remove() // at once, else programs would still run while their maps are cleared
	errs := []error{err}
	for _, m := range d.objects.byName {
		errs = append(errs, m.Unpin()) // which forgets the pin, else the next one would count as there already
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, d.Close())
	}
	if !keepSpare(d) {
		return d.Close()
	}
	return nil
}

// clearedMax is how many entries of a map are worth clearing.
const clearedMax = 5000

var errManyEntries = errors.New("the map has many entries")

// clearMap takes all entries out of a map, or zeroes those that are always there.
func clearMap(m *ebpf.Map) error {
	switch m.Type() {
	case ebpf.SkStorage: // goes with the sockets
		return nil
	case ebpf.RingBuf:
		return drain(m)
	case ebpf.Array, ebpf.PerCPUArray:
		return zeroArray(m)
	}
	// All keys first: each search for the first one would pass all the empty places before it.
	var keys [][]byte
	var last any // nil asks for the first
	for {
		key, err := m.NextKeyBytes(last)
		if err != nil {
			return fmt.Errorf("clear map: %w", err)
		}
		if key == nil {
			break
		}
		if keys, last = append(keys, key), key; len(keys) > clearedMax {
			return errManyEntries
		}
	}
	for _, key := range keys {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("clear map: %w", err)
		}
	}
	return nil
}

// drain reads what is in a ring buffer.
func drain(m *ebpf.Map) error {
	r, err := ringbuf.NewReader(m)
	if err != nil {
		return fmt.Errorf("clear ring buffer: %w", err)
	}
	defer r.Close()
	r.SetDeadline(time.Now())
	for err == nil {
		_, err = r.Read()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("clear ring buffer: %w", err)
}

func zeroArray(m *ebpf.Map) error {
	if m.Type() == ebpf.Array {
		return zeroAtOnce(m)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	zero := make([][]byte, cpus)
	for i := range zero {
		zero[i] = make([]byte, m.ValueSize())
	}
	for i := range m.MaxEntries() {
		if err := m.Put(i, zero); err != nil {
			return fmt.Errorf("clear array: %w", err)
		}
	}
	return nil
}

// zeroAtOnce writes all elements by one system call: `nat_slots` has 131,072.
func zeroAtOnce(m *ebpf.Map) error {
	keys := make([]uint32, m.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	element := reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]())
	values := reflect.MakeSlice(reflect.SliceOf(element), len(keys), len(keys))
	if _, err := m.BatchUpdate(keys, values.Interface(), nil); err != nil {
		return fmt.Errorf("clear array %s: %w", m, err)
	}
	return nil
}

// The datapath of a network that was used is on no device any more, and empty for the next network, which attaches it as its own.
func TestSpareNetworksAreEmpty(t *testing.T) {
	for _, legacy := range attachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			o := options{cfg: Config{EBPFRouting: true, Masquerade: true, NATPorts: device.PortSpan{First: 50000, Last: 60000}}, legacy: legacy}
			var first *network
			t.Run("used", func(t *testing.T) {
				first = newNetwork(t, o)
				first.carriesPods(t)
				first.a1.send(t, "eth0", eth(first.a1.mac, first.a1.gateway).ipv4(podB.v4, first.a2.v4).udp(1, 2).bytes())
				first.awaitDropped(t, first.a, map[string]uint64{bpfProgFromPod + " spoofed_source": 1})
			})
			next := newNetwork(t, o)
			used := []*opened{first.a.d, first.b.d}
			if !slices.Contains(used, next.a.d) || !slices.Contains(used, next.b.d) {
				t.Fatal("the datapaths are not kept")
			}
			next.dropsNothing(t)
			next.carriesPods(t)
			next.dropsNothing(t)
			if err := next.a.d.Commit(); err != nil {
				t.Error(err)
			}
			for _, name := range pinnedMaps {
				if _, err := os.Stat(next.a.d.objects.pins.path(name)); err != nil {
					t.Errorf("a map is not pinned: %v", err)
				}
			}
		})
	}
}

// A rig that was used is empty for the next test, and has its programs.
func TestSpareRigsAreEmpty(t *testing.T) {
	cfg := Config{EBPFRouting: true, Masquerade: true, Services: true, DSR: true, MaglevSize: 31}
	var used *opened
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
