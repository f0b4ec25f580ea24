package datapath_test

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// TestImportsGoDown lists the packages below internal/datapath, each after those that it may import.
func TestImportsGoDown(t *testing.T) {
	testenv.ImportsGoDown(t, "github.com/beeline-cni/beeline/internal/datapath", []string{
		"bpf", "config", "table", "kernel",
		"conntrack", "nat", "fwd", "macvlan", "lb", "policy", "flow",
		"load", "attach", "samenode",
		".", // the assembly
		"internal/fixtures", "internal/testmaps", "internal/harness", "internal/netlab",
	})
}
