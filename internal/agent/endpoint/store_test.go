package endpoint

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

func TestStoreKeepsEndpoints(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := agentapi.Endpoint{Attachment: agentapi.Attachment{ContainerID: "c", IfName: "eth0"}, HostDevice: "bl1", HostIfIndex: 3, Addresses: addrs("10.0.0.2"), ThroughStack: "port mapping"}
	if err := s.save(want); err != nil {
		t.Fatal(err)
	}
	if s, err = openStore(dir); err != nil {
		t.Fatal(err)
	}
	got, err := s.load()
	if diff := cmp.Diff([]agentapi.Endpoint{want}, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("load: %v, endpoints (-want +got):\n%s", err, diff)
	}
	for range 2 { // removing twice is no error
		if err := s.remove("bl1"); err != nil {
			t.Error(err)
		}
	}
	if got, err := s.load(); len(got) != 0 || err != nil {
		t.Errorf("after remove: %v, %v", got, err)
	}
}

func TestStoreSurvivesDamage(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.save(agentapi.Endpoint{HostDevice: "blgood"}); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"bltorn.json": `{"hostDev`, "blother.json": `{"hostDevice":"blgood"}`, "blhalf.json.tmp": "{"} {
		if err := os.WriteFile(filepath.Join(dir, "endpoints", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = openStore(dir); err != nil {
		t.Fatal(err)
	}
	got, err := s.load()
	if len(got) != 1 || got[0].HostDevice != "blgood" {
		t.Errorf("the good endpoint is not alone: %+v", got)
	}
	if err == nil || !strings.Contains(err.Error(), "bltorn") || !strings.Contains(err.Error(), "blother") {
		t.Errorf("error does not name the damaged files: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "endpoints", "blhalf.json.tmp")); !os.IsNotExist(err) {
		t.Error("a half-written file was left")
	}
}
