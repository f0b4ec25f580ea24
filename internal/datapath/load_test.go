package datapath_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Every configuration passes the verifier. The number of processed instructions is printed as Go benchmark lines:
// benchstat compares `go test -run TestLoad -v` of two versions. The recorded numbers bound it.
func TestLoad(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	walked := verified{}
	for _, cfg := range fixtures.EveryConfig() {
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			cfg.Root = fixtures.Bpffs(t)
			programs := loadWhole(t, cfg)
			walked.add(programs)
			for _, p := range programs {
				if p.ID == 0 || p.Tag == "" {
					t.Errorf("program %s has no id or tag: %+v", p.Name, p)
				}
				fmt.Fprintf(os.Stdout, "BenchmarkVerify/program=%s/%s 1 %d insns\n", p.Name, fixtures.CfgName(cfg), p.Instructions)
			}
		})
	}
	walked.check(t, t.Name())
}

// The constants of a configuration reach the programs: each one changes which code the verifier keeps.
func TestConfigChangesPrograms(t *testing.T) {
	testenv.Root(t)
	size := func(cfg config.Datapath, program string) int {
		cfg.Root = fixtures.Bpffs(t)
		d, err := harness.Open(cfg, []string{program}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		info, err := d.Objects.Programs[program].Info()
		if err != nil {
			t.Fatal(err)
		}
		n, err := info.TranslatedSize()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ebpf, kernel := config.Datapath{EBPFRouting: true, Masquerade: true}, config.Datapath{Masquerade: true}
	plain := config.Datapath{EBPFRouting: true}
	for _, c := range []struct {
		program string
		a, b    config.Datapath
	}{
		{bpf.ProgFromPod, ebpf, kernel}, {bpf.ProgFromWire, ebpf, kernel},
		{bpf.ProgFromWire, ebpf, plain}, {bpf.ProgToWire, ebpf, plain},
	} {
		if size(c.a, c.program) == size(c.b, c.program) {
			t.Errorf("%s is the same with %s and with %s", c.program, fixtures.CfgName(c.a), fixtures.CfgName(c.b))
		}
	}
}
