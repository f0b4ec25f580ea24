package table

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Generation numbers the states of the tables that cached results depend on. A flow cache entry is valid for one
// GenerationTables number, and a policy verdict in a conntrack entry for one GenerationPolicy number. Every
// change of such a table therefore ends with an advance.
type Generation struct {
	mu sync.Mutex
	M  *ebpf.Map
}

// The numbers that the agent advances. The datapath advances another one, GENERATION_PODS.
const (
	GenerationTables = uint32(bpf.GenerationIndexGENERATION_TABLES)
	GenerationPolicy = uint32(bpf.GenerationIndexGENERATION_POLICY)
)

// Advance invalidates the flow cache. Call it after the tables have changed: entries that were made from the old
// tables have the old number.
func (g *Generation) Advance() error { return g.step(GenerationTables) }

// AdvanceRevision makes the datapath re-evaluate the policies of existing connections. Call it after the policy
// tables have changed.
func (g *Generation) AdvanceRevision() error { return g.step(GenerationPolicy) }

func (g *Generation) step(index uint32) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, err := g.At(index)
	if err != nil {
		return err
	}
	now++
	if now == 0 {
		now++ // 0 means that nothing is cached
	}
	return g.Put(index, now)
}

func (g *Generation) At(index uint32) (now uint32, err error) {
	if err := g.M.Lookup(index, &now); err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	return now, nil
}

func (g *Generation) Put(index, now uint32) error {
	if err := g.M.Put(index, now); err != nil {
		return fmt.Errorf("advance generation: %w", err)
	}
	return nil
}
