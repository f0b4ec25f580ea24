package policy

import (
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	fair "github.com/beeline-cni/beeline/internal/share"
)

// limits keep the ipBlocks of one namespace from using the capacity that others need in Tables.Blocks.
type limits struct {
	sizes Sizes
	// rejected are the policies whose blocks are left out, with the reason. The pods that they select are isolated.
	rejected map[*cluster.NetworkPolicy]string
	entries  entryLimits
}

// Sizes are the capacities of tables, in entries; 0 is no limit.
type Sizes struct {
	// Blocks, Policies and Ports are those of the tables with these names.
	Blocks, Policies, Ports int
}

// SetSizes sets the capacities. Namespaces share each table: the ones that need most are reduced to one common limit; within a
// namespace policies are accepted in the order of their names. The pods that a rejected policy selects are isolated, and no
// others.
func (c *Compiler) SetSizes(s Sizes) { c.limits.sizes = s }

// blocksOf counts the entries that the blocks of a policy may need.
func blocksOf(p *cluster.NetworkPolicy) (n int) {
	for _, rules := range [][]cluster.PolicyRule{p.Ingress, p.Egress} {
		for i := range rules {
			for _, peer := range rules[i].Peers {
				if peer.Block.IsValid() {
					n += 1 + len(peer.Except)
				}
			}
		}
	}
	return n
}

// collectLimited collects the sets of each local pod and isolates those whose policies exceed the limit.
func (c *Compiler) collectLimited(w *passInput) []Problem {
	problems := c.collectSubjects(w)
	rejected := c.overflow()
	same := len(rejected) == len(c.limits.rejected)
	for p, reason := range rejected {
		same = same && c.limits.rejected[p] == reason
	}
	if same {
		return problems
	}
	c.limits.rejected = rejected
	c.subjects.byNamespace = nil // the policies that isolate each pod have changed
	return c.collectSubjects(w)
}

// overflow returns the policies that select local pods and whose blocks exceed the limit.
func (c *Compiler) overflow() map[*cluster.NetworkPolicy]string {
	if c.limits.sizes.Blocks == 0 {
		return nil
	}
	selecting, spaces, total := map[*cluster.NetworkPolicy]int{}, map[string]int{}, 0
	for _, s := range c.subjects.used {
		for _, p := range s.policies {
			if _, seen := selecting[p.policy]; seen {
				continue
			}
			n := blocksOf(p.policy)
			selecting[p.policy] = n
			spaces[p.policy.Namespace] += n
			total += n
		}
	}
	capacity := c.limits.sizes.Blocks
	if total <= capacity {
		return nil
	}
	var wanted []int
	for _, n := range spaces {
		wanted = append(wanted, n)
	}
	limit := fair.Limit(capacity, wanted)
	var over []*cluster.NetworkPolicy
	for p := range selecting {
		if spaces[p.Namespace] > limit {
			over = append(over, p)
		}
	}
	slices.SortFunc(over, func(a, b *cluster.NetworkPolicy) int { return a.Key().Compare(b.Key()) })
	rejected, had := map[*cluster.NetworkPolicy]string{}, map[string]int{}
	for _, p := range over {
		n := selecting[p]
		if n == 0 || had[p.Namespace]+n <= limit {
			had[p.Namespace] += n
			continue
		}
		rejected[p] = fmt.Sprintf("its %d ipBlocks and exceptions exceed the capacity: namespace %q needs %d, its share is %d (--identities-max)",
			n, p.Namespace, spaces[p.Namespace], limit)
	}
	return rejected
}

// invalidReason returns why a policy isolates the pods that it selects; empty if it is valid and fits.
func (c *Compiler) invalidReason(p *cluster.NetworkPolicy) string {
	if p.Invalid != "" {
		return p.Invalid
	}
	if reason := c.limits.rejected[p]; reason != "" {
		return reason
	}
	return c.limits.entries.rejected[p]
}
