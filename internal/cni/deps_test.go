package cni_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPluginStaysSmall keeps out of the plugin what would make it slow to start.
func TestPluginStaysSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/beeline-cni/beeline/cmd/beeline-cni").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("the list has %d packages, it cannot be whole", len(deps))
	}
	unwanted := []string{"net/http", "crypto/tls", "k8s.io/", "sigs.k8s.io/", "github.com/cilium/ebpf", "github.com/prometheus/", "github.com/spf13/"}
	for _, dep := range deps {
		for _, prefix := range unwanted {
			if dep == strings.TrimSuffix(prefix, "/") || strings.HasPrefix(dep, strings.TrimSuffix(prefix, "/")+"/") {
				t.Errorf("the plugin depends on %s", dep)
			}
		}
	}
}
