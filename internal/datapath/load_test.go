package datapath

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// everyConfig is all the ways to load the datapath, without a Root.
func everyConfig() []Config {
	var all []Config
	for _, routing := range []bool{true, false} {
		for _, masquerade := range []bool{true, false} {
			for _, stackServices := range []bool{true, false} {
				all = append(all, Config{EBPFRouting: routing, Masquerade: masquerade, StackServices: stackServices})
			}
		}
	}
	return all
}

// Every configuration must pass the verifier. How many instructions it walked is printed as Go benchmark
// lines: `go test -run TestLoad -v` of two versions can be compared with benchstat. It is bounded by what is recorded.
func TestLoad(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	walked := verified{}
	for _, cfg := range everyConfig() {
		t.Run(cfgName(cfg), func(t *testing.T) {
			cfg.Root = bpffs(t)
			programs := loadWhole(t, cfg)
			walked.add(programs)
			for _, p := range programs {
				if p.ID == 0 || p.Tag == "" {
					t.Errorf("program %s has no id or tag: %+v", p.Name, p)
				}
				fmt.Fprintf(os.Stdout, "BenchmarkVerify/program=%s/%s 1 %d insns\n", p.Name, cfgName(cfg), p.Instructions)
			}
		})
	}
	walked.check(t, t.Name())
}

// The constants of a configuration must reach the programs: each one changes what the verifier keeps.
func TestConfigChangesPrograms(t *testing.T) {
	testenv.Root(t)
	size := func(cfg Config, program string) int {
		cfg.Root = bpffs(t)
		d, err := open(cfg, []string{program}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		info, err := d.objects.programs[program].Info()
		if err != nil {
			t.Fatal(err)
		}
		n, err := info.TranslatedSize()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ebpf, kernel := Config{EBPFRouting: true, Masquerade: true}, Config{Masquerade: true}
	plain := Config{EBPFRouting: true}
	for _, c := range []struct {
		program string
		a, b    Config
	}{
		{bpfProgFromPod, ebpf, kernel}, {bpfProgFromWire, ebpf, kernel},
		{bpfProgFromWire, ebpf, plain}, {bpfProgToWire, ebpf, plain},
	} {
		if size(c.a, c.program) == size(c.b, c.program) {
			t.Errorf("%s is the same with %s and with %s", c.program, cfgName(c.a), cfgName(c.b))
		}
	}
}
