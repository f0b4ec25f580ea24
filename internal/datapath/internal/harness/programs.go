package harness

import (
	"fmt"
	"log/slog"
	gomaps "maps"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Harnesses load only the programs that a test uses, to save verifier time. TestLoad and TestLoadServices load all
// programs in every configuration.

// use loads missing programs with the datapath's maps.
func (d *Opened) use(programs ...string) error {
	var missing []string
	for _, name := range programs {
		if d.Objects.Programs[name] == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	l, err := load.NewLoader(d.Objects.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	more, err := l.Load(missing, d.Objects.ByName)
	if err != nil {
		return fmt.Errorf("load %v: %w", missing, err)
	}
	gomaps.Copy(d.Objects.Programs, more.Programs)
	return more.Maps.Close()
}

// AttachForms are the ways to attach programs on this kernel: by tcx links, if available, and (true) as filters.
func AttachForms(tb testing.TB) (legacy []bool) {
	tb.Helper()
	testenv.Root(tb)
	tcx, err := kernel.HaveTCX()
	if err != nil {
		tb.Fatal(err)
	}
	if !tcx {
		return []bool{true}
	}
	if testenv.DeviceKind() == "netkit" { // kernels with netkit have tcx
		return []bool{false}
	}
	return []bool{false, true}
}
