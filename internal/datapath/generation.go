package datapath

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
)

// generation numbers the states of the tables that decisions depend on. The datapath keeps a decision only
// until the number changes, so every change of such a table ends with advance.
type generation struct {
	mu sync.Mutex
	m  *ebpf.Map
}

// advance makes the datapath decide anew. The tables have changed before it is called: a decision that was
// made from the old ones bears the old number.
func (g *generation) advance() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var now uint32
	if err := g.m.Lookup(uint32(0), &now); err != nil {
		return fmt.Errorf("read generation: %w", err)
	}
	now++
	if now == 0 {
		now++ // 0 means that nothing is to be kept
	}
	if err := g.m.Put(uint32(0), now); err != nil {
		return fmt.Errorf("advance generation: %w", err)
	}
	return nil
}
