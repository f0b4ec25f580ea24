package datapath_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// policyConfigs are configurations to load policies with, without a Root.
func policyConfigs() map[string]config.Datapath {
	all := map[string]config.Datapath{
		"ebpf":              {EBPFRouting: true, Masquerade: true},
		"plain":             {EBPFRouting: true},
		"kernel":            {Masquerade: true},
		"kernel plain":      {},
		"beside kube-proxy": {EBPFRouting: true, Masquerade: true, StackServices: true},
	}
	maps.Copy(all, servicesConfigs())
	return all
}

// With policies and all flow events, every configuration passes the verifier.
func TestLoadPolicy(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	loadPolicies(t, config.FlowsAll)
}

// With fewer flow events, whose programs are shorter, too.
func TestLoadPolicyFewerFlows(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	loadPolicies(t, config.FlowsOff, config.FlowsPolicy)
}

func loadPolicies(t *testing.T, modes ...config.FlowMode) {
	t.Helper()
	processed := verified{}
	for name, cfg := range policyConfigs() {
		for _, flows := range modes {
			cfg.Policy, cfg.Flows = true, flows
			t.Run(fmt.Sprintf("%s/flows=%d", name, flows), func(t *testing.T) {
				cfg.Root = fixtures.Bpffs(t)
				programs := loadWhole(t, cfg)
				processed.add(programs)
				for _, p := range programs {
					fmt.Fprintf(os.Stdout, "BenchmarkVerify/program=%s/policy=%s/flows=%d 1 %d insns\n", p.Name, name, flows, p.Instructions)
				}
			})
		}
	}
	processed.check(t, "TestLoadPolicy")
}

// loadWhole loads the programs of a configuration and returns them. If one is rejected it logs the end of the
// verifier's log.
func loadWhole(t *testing.T, cfg config.Datapath) []table.ProgramInfo {
	t.Helper()
	d, err := harness.Open(cfg, cfg.Programs(), slog.New(slog.DiscardHandler))
	var rejected *ebpf.VerifierError
	if errors.As(err, &rejected) {
		t.Log(strings.Join(rejected.Log[max(0, len(rejected.Log)-60):], "\n"))
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer d.Close()
	programs, err := d.Programs()
	if err != nil {
		t.Fatal(err)
	}
	if want := len(cfg.Programs()) + len(cfg.AgentPrograms()); len(programs) != want {
		t.Errorf("%d programs, expected %d", len(programs), want)
	}
	return programs
}
