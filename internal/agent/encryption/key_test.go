package encryption_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/encryption"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
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

// A key that others than root can read, one that is zero, and what is no file are errors. A half written key of an
// earlier agent, with any mode, is not used.
func TestLoadKeyRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "wireguard.key")
	if err := os.WriteFile(path+".tmp", []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, made, err := encryption.LoadKey(path); err != nil || !made {
		t.Fatalf("made %v: %v", made, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	zero := filepath.Join(dir, "zero.key")
	if err := os.WriteFile(zero, []byte(wireguard.Key{}.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{path: "others than root", zero: "it is zero", dir: "is no file"} {
		if key, _, err := encryption.LoadKey(path); err == nil || !strings.Contains(err.Error(), want) || key != (wireguard.Key{}) {
			t.Errorf("%s: error %v, want one with %q", path, err, want)
		}
	}
}
