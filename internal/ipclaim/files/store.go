// Package files keeps the IPClaims of a node without an API server: one file for each, written by rename.
package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Store is a directory of claims. One process uses it. It is safe for concurrent use.
type Store struct {
	dir string

	mu      sync.Mutex
	claims  map[netip.Addr]*cluster.IPClaim
	version int
}

const suffix = ".json"

// Open reads the claims below a state directory. A file that cannot be read keeps its address allocated until somebody
// removes it: its error is returned beside the store, which is usable.
func Open(stateDir string) (*Store, error) {
	s := &Store{dir: filepath.Join(stateDir, "claims"), claims: map[netip.Addr]*cluster.IPClaim{}}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of IPClaims: %w", err)
	}
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list IPClaims: %w", err)
	}
	var errs []error
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok {
			_ = os.Remove(filepath.Join(s.dir, f.Name())) // half-written by an agent that died
			continue
		}
		addr, err := cluster.ClaimAddress(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c := &cluster.IPClaim{}
		data, err := os.ReadFile(s.path(addr))
		if err == nil {
			err = json.Unmarshal(data, c)
		}
		if err == nil && c.Address != addr {
			err = fmt.Errorf("it is that of %s", c.Address)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read IPClaim %s: %w", s.path(addr), err))
			c = &cluster.IPClaim{Address: addr, ContainerID: "unknown"}
		}
		s.claims[addr] = c
		if version, err := strconv.Atoi(c.Version); err == nil {
			s.version = max(s.version, version)
		}
	}
	return s, errors.Join(errs...)
}

func (s *Store) path(a netip.Addr) string { return filepath.Join(s.dir, cluster.ClaimName(a)+suffix) }

// Create implements ipclaim.Store.
func (s *Store) Create(_ context.Context, c *cluster.IPClaim) (*cluster.IPClaim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[c.Address] != nil {
		return nil, fmt.Errorf("create IPClaim of %s: %w", c.Address, cluster.ErrClaimExists)
	}
	return s.write(c)
}

// Update implements ipclaim.Store.
func (s *Store) Update(_ context.Context, c *cluster.IPClaim) (*cluster.IPClaim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.claims[c.Address]; now == nil || now.Version != c.Version {
		return nil, fmt.Errorf("update IPClaim of %s: %w", c.Address, cluster.ErrClaimChanged)
	}
	return s.write(c)
}

// write writes a claim with a new version.
func (s *Store) write(c *cluster.IPClaim) (*cluster.IPClaim, error) {
	s.version++
	made := *c
	made.Version = strconv.Itoa(s.version)
	data, err := json.Marshal(made)
	if err != nil {
		return nil, fmt.Errorf("encode IPClaim of %s: %w", c.Address, err)
	}
	path := s.path(c.Address)
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return nil, fmt.Errorf("write IPClaim: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return nil, fmt.Errorf("put IPClaim in place: %w", err)
	}
	s.claims[c.Address] = &made
	return &made, nil
}

// Delete implements ipclaim.Store.
func (s *Store) Delete(_ context.Context, c *cluster.IPClaim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := s.claims[c.Address]; {
	case now == nil:
		return nil
	case now.Version != c.Version:
		return fmt.Errorf("delete IPClaim of %s: %w", c.Address, cluster.ErrClaimChanged)
	}
	if err := os.Remove(s.path(c.Address)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete IPClaim: %w", err)
	}
	delete(s.claims, c.Address)
	return nil
}

// Get implements ipclaim.Store.
func (s *Store) Get(_ context.Context, a netip.Addr) (*cluster.IPClaim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[a], nil
}

// Follow implements ipclaim.Store: nothing but the allocation itself changes the files.
func (s *Store) Follow(ctx context.Context, index cluster.ClaimIndex) {
	s.mu.Lock()
	all := make([]*cluster.IPClaim, 0, len(s.claims))
	for _, c := range s.claims {
		all = append(all, c)
	}
	s.mu.Unlock()
	index.Replace(all)
	<-ctx.Done()
}

// Pod implements ipclaim.Facts: without an API server a pod exists as long as its endpoint.
func (s *Store) Pod(context.Context, cluster.Key) (*cluster.Pod, error) { return nil, nil }

// NodeGone implements ipclaim.Facts: there is one node.
func (s *Store) NodeGone(context.Context, string) (bool, error) { return false, nil }

// Ordinals implements ipclaim.Facts: there are no StatefulSets.
func (s *Store) Ordinals(context.Context, cluster.Key) (first, count int, err error) {
	return 0, 0, nil
}
