package files

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ipclaim"
)

var (
	_ ipclaim.Store = &Store{}
	_ ipclaim.Facts = &Store{}
)

type listed []*cluster.IPClaim

func (l *listed) Replace(all []*cluster.IPClaim) { *l = all }
func (l *listed) Set(*cluster.IPClaim)           {}
func (l *listed) Remove(netip.Addr)              {}

// list gives the claims that an agent finds when it starts.
func list(t *testing.T, s *Store) (all listed) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Follow(ctx, &all)
	return all
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr("2001:db8::7")
	first, err := s.Create(t.Context(), &cluster.IPClaim{Address: a, Pool: "office", Node: "n", Pod: "web", ContainerID: "c1", IfName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), first); !errors.Is(err, cluster.ErrClaimExists) {
		t.Errorf("an address is allocated twice: %v", err)
	}
	next := *first
	next.ContainerID = "c2"
	second, err := s.Update(t.Context(), &next)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), first); !errors.Is(err, cluster.ErrClaimChanged) {
		t.Errorf("an update of an older state: %v", err)
	}
	if err := s.Delete(t.Context(), first); !errors.Is(err, cluster.ErrClaimChanged) {
		t.Errorf("a deletion of an older state: %v", err)
	}
	// The next agent.
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(listed{second}, list(t, s), same); diff != "" {
		t.Errorf("after a restart (-written +read):\n%s", diff)
	}
	if err := errors.Join(s.Delete(t.Context(), second), s.Delete(t.Context(), second)); err != nil {
		t.Errorf("deleting it, and again: %v", err)
	}
	third, err := s.Create(t.Context(), first)
	if err != nil || third.Version == first.Version || third.Version == second.Version {
		t.Errorf("a new claim has the version of an older one: %+v, %v", third, err)
	}
}

// A file that cannot be read keeps its address; what an agent left half-written goes.
func TestBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"192-0-2-1.json": "{", "192-0-2-2.json": `{"Address":"192.0.2.9"}`, "192-0-2-3.json.tmp": "{}", "office.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, "claims", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(dir)
	if err == nil || s == nil {
		t.Fatalf("%v, %v", s, err)
	}
	if got := list(t, s); len(got) != 2 {
		t.Errorf("claims: %+v", got)
	}
	for _, text := range []string{"192.0.2.1", "192.0.2.2"} {
		if _, err := s.Create(t.Context(), &cluster.IPClaim{Address: netip.MustParseAddr(text)}); !errors.Is(err, cluster.ErrClaimExists) {
			t.Errorf("%s is allocated, and its file cannot be read: %v", text, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "claims", "192-0-2-3.json.tmp")); !os.IsNotExist(err) {
		t.Errorf("a half-written file stays: %v", err)
	}
}
