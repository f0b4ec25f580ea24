package datapath_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// macvlanConfigs are configurations of nodes with macvlan pods, without a Root.
func macvlanConfigs() map[string]config.Datapath {
	return map[string]config.Datapath{
		"plain":        {EBPFRouting: true, Macvlan: true, HostNetns: 1},
		"services":     {EBPFRouting: true, Macvlan: true, HostNetns: 1, Masquerade: true, Services: true, DSR: true},
		"kube-proxy":   {EBPFRouting: true, Macvlan: true, HostNetns: 1, StackServices: true, Policy: true},
		"plain netkit": {EBPFRouting: true, Macvlan: true, Netkit: true, HostNetns: 1},
		"all netkit": {
			EBPFRouting: true, Macvlan: true, Netkit: true, HostNetns: 1, Masquerade: true, Services: true, DSR: true, Policy: true,
			Flows: config.FlowsAll, TunnelPort: fixtures.VxlanPort, Encryption: config.EncryptionIPsec,
		},
		"all": {
			EBPFRouting: true, Macvlan: true, HostNetns: 1, Masquerade: true, Services: true, DSR: true, Policy: true,
			Flows: config.FlowsAll, TunnelPort: fixtures.VxlanPort, Encryption: config.EncryptionWireGuard,
		},
	}
}

// With macvlan pods every configuration passes the verifier.
func TestLoadMacvlan(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	processed := verified{}
	for name, cfg := range macvlanConfigs() {
		t.Run(name, func(t *testing.T) {
			cfg.Root = fixtures.Bpffs(t)
			programs := loadWhole(t, cfg)
			processed.add(programs)
			for _, p := range programs {
				fmt.Fprintf(os.Stdout, "BenchmarkVerify/program=%s/macvlan=%s 1 %d insns\n", p.Name, name, p.Instructions)
			}
		})
	}
	processed.check(t, t.Name())
}
