package load

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestOpenWithoutBPFFileSystem(t *testing.T) {
	root := t.TempDir()
	_, err := Open(config.Datapath{Root: filepath.Join(root, "deep", "beeline")}, nil, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "mount -t bpf") {
		t.Errorf("error %v, want one that says what to mount", err)
	}
	left, err := os.ReadDir(root)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestRequireBPFFS(t *testing.T) {
	testenv.Root(t)
	root := fixtures.Bpffs(t)
	for _, dir := range []string{root, filepath.Join(root, "not", "there")} {
		if err := requireBPFFS(dir); err != nil {
			t.Error(err)
		}
	}
}
