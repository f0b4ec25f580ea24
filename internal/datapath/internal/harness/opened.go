package harness

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

// Opened is a datapath with its parts.
type Opened struct {
	*datapath.Datapath
	Objects *load.Objects
}

// Open is Open with these programs.
func Open(cfg config.Datapath, programs []string, log *slog.Logger) (*Opened, error) {
	o, err := load.Open(cfg, programs, log)
	if err != nil {
		return nil, err
	}
	return assemble(o)
}

func assemble(o *load.Objects) (*Opened, error) {
	d := &Opened{datapath.Assemble(o), o}
	if err := d.Conntrack.Divide(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Dropped gives the drop counters that are not zero, by "program reason".
func (d *Opened) Dropped(tb testing.TB) map[string]flow.Drop {
	tb.Helper()
	all, err := d.Drops.All()
	if err != nil {
		tb.Fatal(err)
	}
	counted := map[string]flow.Drop{}
	for _, drop := range all {
		if drop.Packets != 0 || drop.Bytes != 0 {
			counted[drop.Program+" "+drop.Reason.String()] = drop
		}
	}
	return counted
}

// Unload takes the programs off everything, removes the pins and closes the datapath.
func Unload(d *Opened) error {
	attached, err := d.Attachments()
	errs := []error{err}
	for _, a := range attached {
		errs = append(errs, d.Detach(a.Device)) // also where this datapath attaches otherwise than the one before it
	}
	_, err = d.Remove()
	return errors.Join(append(errs, err, d.Close())...)
}

// OpenTables opens maps as Open does, without loading programs.
func OpenTables(t testing.TB, cfg config.Datapath, log *slog.Logger) *Opened {
	t.Helper()
	d, err := Open(cfg, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// OpenVersion is open for programs of another version; nil is this one.
func OpenVersion(tb testing.TB, cfg config.Datapath, version func(testing.TB, *ebpf.CollectionSpec), programs []string) (*Opened, error) {
	tb.Helper()
	l, err := load.NewLoader(cfg, fixtures.TestLog(tb))
	if err != nil {
		return nil, err
	}
	if version != nil {
		version(tb, l.Spec)
	}
	o, err := l.Open(programs, fixtures.TestLog(tb))
	if err != nil {
		return nil, err
	}
	return assemble(o)
}
