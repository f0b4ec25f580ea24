package datapath_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// servicesConfigs are configurations of Services, without a Root.
func servicesConfigs() map[string]config.Datapath {
	return map[string]config.Datapath{
		"snat":                     {EBPFRouting: true, Masquerade: true, Services: true},
		"dsr":                      {EBPFRouting: true, Masquerade: true, Services: true, DSR: true},
		"dsr,without masquerading": {EBPFRouting: true, Services: true, DSR: true},
		"kernel routing":           {Masquerade: true, Services: true, DSR: true},
	}
}

// With Services every configuration passes the verifier.
func TestLoadServices(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	processed := verified{}
	for name, cfg := range servicesConfigs() {
		t.Run(name, func(t *testing.T) {
			cfg.Root, cfg.Acceleration, cfg.Cgroup = fixtures.Bpffs(t), config.AccelerationAuto, "/sys/fs/cgroup" // to load all programs
			programs := loadWhole(t, cfg)
			if want := len(bpf.ProgramNames) - len(bpf.MacvlanPrograms) - len(bpf.WireguardPrograms) - len(bpf.IPsecPrograms) + len(bpf.SocketProgramNames); len(programs) != want {
				t.Errorf("%d programs, expected %d", len(programs), want)
			}
			processed.add(programs)
			for _, p := range programs {
				fmt.Fprintf(os.Stdout, "BenchmarkVerify/program=%s/services=%s 1 %d insns\n", p.Name, name, p.Instructions)
			}
		})
	}
	processed.check(t, t.Name())
}
