package table

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Generation numbers the states of the tables that decisions and sessions depend on. The datapath keeps a decision only
// until the number changes, so every change of such a table ends with advance; what policies said of a session only until
// advanceRevision, and who is behind an address until advanceIdentities.
type Generation struct {
	mu sync.Mutex
	M  *ebpf.Map
}

// What the numbers are of that the agent counts up. The datapath counts up another one, GENERATION_PODS.
const (
	GenerationTables     = uint32(bpf.GenerationIndexGENERATION_TABLES)
	GenerationPolicy     = uint32(bpf.GenerationIndexGENERATION_POLICY)
	GenerationIdentities = uint32(bpf.GenerationIndexGENERATION_IDENTITIES)
)

// Advance makes the datapath decide anew. The tables have changed before it is called: a decision that was
// made from the old ones bears the old number.
func (g *Generation) Advance() error { return g.step(GenerationTables) }

// AdvanceRevision makes the datapath judge sessions anew. The tables of policies have changed before it is called.
func (g *Generation) AdvanceRevision() error { return g.step(GenerationPolicy) }

// AdvanceIdentities makes the datapath ask anew who is behind an address. The tables that say it have changed before it is called.
func (g *Generation) AdvanceIdentities() error { return g.step(GenerationIdentities) }

func (g *Generation) step(index uint32) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, err := g.At(index)
	if err != nil {
		return err
	}
	now++
	if now == 0 {
		now++ // 0 means that nothing is to be kept
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
