package encryption_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/encryption"
)

// A node keeps its key, which only root can read. A damaged file is an error: a new key would cut the node off.
func TestLoadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "wireguard.key")
	first, made, err := encryption.LoadKey(path)
	if err != nil || !made {
		t.Fatalf("made %v: %v", made, err)
	}
	again, made, err := encryption.LoadKey(path)
	if err != nil || made || again != first {
		t.Errorf("another key, made %v: %v", made, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("AAAA\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := encryption.LoadKey(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged key: %v", err)
	}
}
