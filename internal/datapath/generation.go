package datapath

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
)

// generation numbers the states of the tables that decisions and sessions depend on. The datapath keeps a decision only
// until the number changes, so every change of such a table ends with advance; what policies said of a session only until
// advanceRevision, and who is behind an address until advanceIdentities.
type generation struct {
	mu sync.Mutex
	m  *ebpf.Map
}

// What the numbers are of that the agent counts up. The datapath counts up another one, GENERATION_PODS.
const (
	generationTables     = uint32(bpfGenerationIndexGENERATION_TABLES)
	generationPolicy     = uint32(bpfGenerationIndexGENERATION_POLICY)
	generationIdentities = uint32(bpfGenerationIndexGENERATION_IDENTITIES)
)

// advance makes the datapath decide anew. The tables have changed before it is called: a decision that was
// made from the old ones bears the old number.
func (g *generation) advance() error { return g.step(generationTables) }

// advanceRevision makes the datapath judge sessions anew. The tables of policies have changed before it is called.
func (g *generation) advanceRevision() error { return g.step(generationPolicy) }

// advanceIdentities makes the datapath ask anew who is behind an address. The tables that say it have changed before it is called.
func (g *generation) advanceIdentities() error { return g.step(generationIdentities) }

func (g *generation) step(index uint32) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, err := g.at(index)
	if err != nil {
		return err
	}
	now++
	if now == 0 {
		now++ // 0 means that nothing is to be kept
	}
	return g.put(index, now)
}

func (g *generation) at(index uint32) (now uint32, err error) {
	if err := g.m.Lookup(index, &now); err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	return now, nil
}

func (g *generation) put(index, now uint32) error {
	if err := g.m.Put(index, now); err != nil {
		return fmt.Errorf("advance generation: %w", err)
	}
	return nil
}
