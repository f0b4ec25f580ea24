// Package cmd tests what the programs below it link.
package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const module = "github.com/beeline-cni/beeline/"

// programs has the limits of each program: its size in November 2026 and 10 %. Before raising one, find what has grown
// with `go version -m` and `go list -deps ./cmd/NAME`, and state the gain in the commit.
var programs = map[string]struct {
	size   int64 // bytes, on amd64, built as `make build` does
	denied []string
}{
	"beeline": {5_960_000, []string{
		module + "lab", module + "internal/agent", module + "internal/datapath", module + "internal/device", module + "internal/cluster",
		"github.com/cilium/ebpf", "github.com/vishvananda/netlink", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go/rest",
	}},
	"beeline-agent": {33_300_000, []string{module + "lab", "k8s.io/client-go/tools/remotecommand"}},
	"beeline-cni": {4_430_000, []string{
		module + "lab", "net/http", "crypto/tls", "k8s.io", "sigs.k8s.io", "github.com/cilium/ebpf", "github.com/prometheus", "github.com/spf13",
	}},
	"beeline-lab":   {29_000_000, []string{module + "internal/agent", module + "internal/cni"}},
	"beeline-bench": {7_570_000, []string{module + "internal/agent", module + "internal/datapath", "k8s.io/client-go"}},
}

// TestPrograms builds each program and checks what it links and how large it is.
func TestPrograms(t *testing.T) {
	dirs, err := filepath.Glob("*/main.go")
	if err != nil || len(dirs) != len(programs) {
		t.Errorf("%d programs, %d have limits (%v)", len(dirs), len(programs), err)
	}
	for name, limit := range programs {
		t.Run(name, func(t *testing.T) {
			deps := strings.Fields(run(t, "go", "list", "-deps", "./"+name))
			if len(deps) < 50 {
				t.Fatalf("go list names only %d packages", len(deps))
			}
			for _, dep := range deps {
				if within(dep, limit.denied) {
					t.Errorf("links %s", dep)
				}
			}
			file := filepath.Join(t.TempDir(), name)
			run(t, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", file, "./"+name)
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.1f MB, at most %.1f MB", float64(info.Size())/1e6, float64(limit.size)/1e6)
			if runtime.GOARCH == "amd64" && info.Size() > limit.size {
				t.Errorf("%d bytes, more than %d", info.Size(), limit.size)
			}
		})
	}
}

// within reports whether a package has one of these paths or is below one.
func within(pkg string, paths []string) bool {
	for _, p := range paths {
		if pkg == p || strings.HasPrefix(pkg, p+"/") {
			return true
		}
	}
	return false
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return string(out)
}
