package datapath

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// servicesConfigs are the ways to translate Services, without a Root.
func servicesConfigs() map[string]Config {
	return map[string]Config{
		"snat":                     {EBPFRouting: true, Masquerade: true, Services: true},
		"dsr":                      {EBPFRouting: true, Masquerade: true, Services: true, DSR: true},
		"dsr,without masquerading": {EBPFRouting: true, Services: true, DSR: true},
		"kernel routing":           {Masquerade: true, Services: true, DSR: true},
	}
}

// With Services, too, every configuration must pass the verifier.
func TestLoadServices(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	walked := verified{}
	for name, cfg := range servicesConfigs() {
		t.Run(name, func(t *testing.T) {
			cfg.Root, cfg.Acceleration, cfg.Cgroup = bpffs(t), AccelerationAuto, "/sys/fs/cgroup" // for all programs there are
			d, err := Open(cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatalf("%+v", err)
			}
			defer d.Close()
			programs, err := d.Programs()
			if err != nil {
				t.Fatal(err)
			}
			if want := len(programNames) + len(socketProgramNames); len(programs) != want {
				t.Errorf("%d programs, expected %d", len(programs), want)
			}
			walked.add(programs)
			for _, p := range programs {
				fmt.Fprintf(os.Stdout, "BenchmarkVerify/program=%s/services=%s 1 %d insns\n", p.Name, name, p.Instructions)
			}
		})
	}
	walked.check(t, t.Name())
}
