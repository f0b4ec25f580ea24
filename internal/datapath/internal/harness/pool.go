package harness

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

	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

// After a test, the next one of the same configuration reuses its datapath, detached from all devices and with
// cleared maps, which saves verifier time.

// spares are unused datapaths, the latest last.
var spares struct {
	sync.Mutex
	all []*Opened
}

// sparesMax bounds the spares: each has preallocated maps. A network has two, and EveryConfig eight configurations.
const sparesMax = 16

// lendDatapath returns a datapath with empty maps, without programs or with some, until the end of the test.
func lendDatapath(tb testing.TB, cfg config.Datapath) *Opened {
	tb.Helper()
	d := takeSpare(cfg)
	if d == nil {
		cfg.Root = fixtures.Bpffs(tb) // unmounted when it is spare: no pins
		var err error
		if d, err = Open(cfg, nil, slog.New(slog.DiscardHandler)); err != nil {
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

func takeSpare(cfg config.Datapath) *Opened {
	spares.Lock()
	defer spares.Unlock()
	for i, d := range spares.all {
		have := d.Objects.Config
		have.Root = cfg.Root
		if have.MacvlanSource = cfg.MacvlanSource; cfg.Handled == 0 {
			have.Handled = 0 // any
		}
		if have == cfg {
			spares.all = append(spares.all[:i:i], spares.all[i+1:]...)
			return d
		}
	}
	return nil
}

// keepSpare clears the datapath for reuse; false if that fails or takes longer than it saves.
func keepSpare(d *Opened) bool {
	for _, m := range d.Objects.ByName {
		if ClearMap(m) != nil {
			return false
		}
	}
	// Cached state of the maps and settings of the test are reset too.
	if d.Sockets.Close() != nil {
		return false
	}
	d.Objects.Log = slog.New(slog.DiscardHandler) // the test's has ended
	d.Datapath = datapath.Assemble(d.Objects)
	if d.Conntrack.Divide() != nil {
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

// Borrow is open where nothing is pinned yet below cfg.Root. With GiveBack the next test can have the datapath.
func Borrow(cfg config.Datapath, programs []string, log *slog.Logger) (*Opened, error) {
	d := takeSpare(cfg)
	if d == nil {
		return Open(cfg, programs, log)
	}
	var err error
	if d.Objects.Tcx, err = kernel.HaveTCX(); err != nil { // a test may have set it
		return nil, errors.Join(err, d.Close())
	}
	cfg.Handled, cfg.MacvlanSource = d.Objects.Config.Handled, d.Objects.Config.MacvlanSource // of the loaded programs
	d.Objects.Config, d.Objects.Log, d.Objects.Fresh, d.Objects.Committed = cfg, log, slices.Clone(load.PinnedMaps), false
	d.Objects.Pins.Root, d.Objects.Pins.Before = cfg.Root, nil
	d.Datapath = datapath.Assemble(d.Objects)
	for _, dir := range []string{load.MapDir(cfg.Root), load.LinkDir(cfg.Root)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	if err := d.Objects.LoadMore(programs...); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// GiveBack is unload for a datapath that was borrowed. It must be called where its devices are.
func GiveBack(d *Opened) error {
	_, err := d.Remove() // at once, else programs would still run while their maps are cleared
	errs := []error{err}
	for _, m := range d.Objects.ByName {
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

// ClearMap deletes all entries of a map, or zeroes them if the map is an array.
func ClearMap(m *ebpf.Map) error {
	switch m.Type() {
	case ebpf.SkStorage: // goes with the sockets
		return nil
	case ebpf.RingBuf:
		return drain(m)
	case ebpf.Array, ebpf.PerCPUArray:
		return ZeroArray(m)
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

// ZeroArray writes all elements by one system call: `nat_slots` has 131,072.
func ZeroArray(m *ebpf.Map) error {
	keys := make([]uint32, m.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	perElement := 1
	if m.Type() == ebpf.PerCPUArray {
		perElement = ebpf.MustPossibleCPU()
	}
	element := reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]())
	values := reflect.MakeSlice(reflect.SliceOf(element), len(keys)*perElement, len(keys)*perElement)
	if _, err := m.BatchUpdate(keys, values.Interface(), nil); err != nil {
		return fmt.Errorf("clear array %s: %w", m, err)
	}
	return nil
}
