package datapath

import (
	"fmt"
	"log/slog"
	gomaps "maps"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// Most tests meet one or two programs, and most of their time would be the verifier's: rigs load only what a test uses. That all
// programs load in every configuration is for TestLoad and TestLoadServices.

// use loads programs that are not loaded yet, with the datapath's maps.
func (d *opened) use(programs ...string) error {
	var missing []string
	for _, name := range programs {
		if d.objects.programs[name] == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	l, err := loaderFor(d.objects.config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	more, err := l.load(missing, d.objects.byName)
	if err != nil {
		return fmt.Errorf("load %v: %w", missing, err)
	}
	gomaps.Copy(d.objects.programs, more.programs)
	return more.maps.Close()
}

// attachForms are the ways to attach programs on this kernel: as tcx links, where it has them, and (true) as filters.
func attachForms(tb testing.TB) (legacy []bool) {
	tb.Helper()
	testenv.Root(tb)
	tcx, err := haveTCX()
	if err != nil {
		tb.Fatal(err)
	}
	if !tcx {
		return []bool{true}
	}
	return []bool{false, true}
}

// programsHere are those that a node of a test's network may attach.
func (n *node) programsHere() []string {
	return slices.DeleteFunc(n.cfg.programs(), func(name string) bool {
		return n.tunnelIndex == 0 && slices.Contains(tunnelPrograms, name)
	})
}

// The programs that a configuration has no use for are not loaded, and attaching them says so.
func TestOpenLoadsWhatIsOfUse(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"plain", Config{EBPFRouting: true}, []string{bpfProgFromPod, bpfProgFromWire}},
		{"kernel routing", Config{}, []string{bpfProgFromPod, bpfProgToPod}},
		{"masquerading", Config{EBPFRouting: true, Masquerade: true}, []string{bpfProgFromPod, bpfProgFromWire, bpfProgToWire}},
		{"policies", Config{EBPFRouting: true, Policy: true}, []string{bpfProgFromPod, bpfProgToPod, bpfProgFromWire}},
		{"Services at tc", Config{EBPFRouting: true, Services: true}, []string{bpfProgFromPod, bpfProgToPod, bpfProgFromWire, bpfProgToWire}},
		{"Services at XDP and at sockets", Config{EBPFRouting: true, Services: true, Acceleration: AccelerationAuto, Cgroup: "/somewhere"},
			append([]string{bpfProgFromPod, bpfProgToPod, bpfProgFromWire, bpfProgToWire, bpfProgWireXdp}, socketProgramNames...)},
	} {
		want := slices.Sorted(slices.Values(append(c.want, tunnelPrograms...)))
		if got := slices.Sorted(slices.Values(c.cfg.programs())); !slices.Equal(got, want) {
			t.Errorf("%s: programs %v, want %v", c.name, got, want)
		}
	}
}
