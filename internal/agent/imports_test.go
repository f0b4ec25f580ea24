package agent

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// TestImportsGoDown lists the packages below internal/agent, each after those that it may import.
func TestImportsGoDown(t *testing.T) {
	testenv.ImportsGoDown(t, "github.com/beeline-cni/beeline/internal/agent", []string{
		"value", "problem", "httpserve", "loop", "ipseckeys",
		"failclosed", "conntrack", "flow", "lb", "node", "policy", "natports", "encryption", "bandwidth",
		"mode", "poddevice", "endpoint", "programs", "samenode",
		"status", "source", "ippools", "reconcile",
		".", // wires them
	})
}
