package main

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/beeline-cni/beeline/test/netlab"
)

// The tests of the programs, whole: agents, plugin and command line.
const (
	endToEndDir  = "test/e2e"
	adversaryDir = "test/adversary"
	// instructionsDir wants a machine of its own: see machine.instructions.
	instructionsDir = "test/instructions"
	// encryptionDir is the bench's suite of that name with its networks: this machine's kernel may have no encryption.
	encryptionDir = "lab/suite/encryption"
)

// startsPrograms says whether the tests of the package in dir start this project's programs.
func startsPrograms(dir string) bool {
	return slices.Contains([]string{endToEndDir, adversaryDir, instructionsDir, encryptionDir}, dir)
}

// endToEndPrograms are those of this machine that labs and these tests call. BusyBox has some of these names with less behind them.
var endToEndPrograms = []string{
	"bash", "dash", "ip", "bridge", "tc", "bpftool", "sysctl", "ping", "unshare", "getent", "sleep",
	"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore",
	"/usr/lib/cni/tuning", "/usr/lib/cni/portmap", "/usr/lib/cni/bandwidth", "/usr/lib/cni/bridge", "/usr/lib/cni/ptp", "/usr/lib/cni/host-local", "/usr/lib/cni/loopback",
}

// benchPrograms are the programs that only the tests of encryptionDir call.
var benchPrograms = []string{"netperf", "netserver", "iperf3"}

// fillPrograms puts below root what these tests start: the builds of this project's programs, and this machine's programs.
func fillPrograms(ctx context.Context, root string) error {
	builds := filepath.Join(root, "builds")
	for _, name := range netlab.Variants {
		if _, err := netlab.Variant(".", builds, name); err != nil {
			return err
		}
	}
	for _, name := range endToEndPrograms {
		if err := copyProgram(ctx, root, name); err != nil {
			return err
		}
	}
	return fillXtables(ctx, root)
}
