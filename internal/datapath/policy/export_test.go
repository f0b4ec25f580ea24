package policy

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/policy"
)

// All reads the tables. Identities includes peers, and there are no names.
func (p *Table) All() (*policy.Tables, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pods, err1 := p.pods.all()
	identities, err2 := p.identities.all()
	blocks, err3 := p.blocks.all()
	policies, err4 := p.policies.all()
	ports, err5 := p.ports.all()
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	return &policy.Tables{Pods: pods, Identities: identities, Blocks: withoutGuard(blocks), Policies: policies, Ports: ports}, nil
}

// PolicyCounts are the numbers of entries of the policy tables.
type PolicyCounts struct {
	// Pods counts addresses of selected pods, and Closed the ones that are deny-all in some direction.
	Pods, Closed                        int
	Identities, Blocks, Policies, Ports int
}

// Counts returns the sizes of the tables, from memory; all are zero before the first Sync or Close.
func (p *Table) Counts() PolicyCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.podsMu.Lock()
	defer p.podsMu.Unlock()
	c := PolicyCounts{
		Pods: len(p.pods.has), Identities: p.identities.has.Len(), Blocks: len(p.blocks.has),
		Policies: len(p.policies.has), Ports: len(p.ports.has),
	}
	for _, sets := range p.pods.has {
		if sets.Ingress == policy.DenyAll || sets.Egress == policy.DenyAll {
			c.Closed++
		}
	}
	return c
}

func (c PolicyCounts) String() string {
	return fmt.Sprintf("%d pods (%d closed), %d identities, %d blocks, %d policies, %d ports", c.Pods, c.Closed, c.Identities, c.Blocks, c.Policies, c.Ports)
}

// withoutGuard undoes guarded.
func withoutGuard(blocks map[netip.Prefix]policy.Identity) map[netip.Prefix]policy.Identity {
	if identity, ok := blocks[allIPv4]; ok && identity == policy.IdentityUnknown && holdIPv4(blocks) {
		delete(blocks, allIPv4)
	}
	return blocks
}
