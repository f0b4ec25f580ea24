package nat

import (
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
)

// Exports for tests outside the package.
const (
	SettlingTime = settling
	ExpiryCalls  = slots
)

// UnrepliedTimeout is the timeout of a TCP connection without a reply.
func UnrepliedTimeout(protocol uint8) time.Duration {
	return entry{key: bpf.Tuple{Protocol: protocol}}.timeout(conntrack.StateNew, bpf.NatEntry{})
}

// RemoveByKey removes a connection by the key of one of its directions, as Expire would.
func (c *Table) RemoveByKey(key bpf.Tuple) error {
	e := entry{key: key}
	if err := c.entries.Lookup(&e.key, &e.value); err != nil {
		return err
	}
	_, err := c.remove(e)
	return err
}
