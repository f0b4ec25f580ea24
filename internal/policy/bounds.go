package policy

import (
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	fair "github.com/beeline-cni/beeline/internal/share"
)

// bounds keep the ipBlocks of one namespace from taking the room that pods and other namespaces need: tables of addresses are shared by all.
type bounds struct {
	sizes Sizes
	// refused are the policies whose blocks are left out, each with the reason: whom they select is closed.
	refused map[*cluster.NetworkPolicy]string
	entries entryBounds
	// pods are those that were counted last, taken how many addresses they have.
	pods  cluster.List[*cluster.Pod]
	taken int
}

// countPods counts the addresses of a snapshot's pods, by what has changed since the last one.
func (b *bounds) countPods(pods cluster.List[*cluster.Pod]) int {
	cluster.Differences(b.pods, pods, func(before, after *cluster.Pod) {
		if before != nil {
			b.taken -= len(before.Addresses)
		}
		if after != nil {
			b.taken += len(after.Addresses)
		}
	})
	b.pods = pods
	return b.taken
}

// Sizes are how many entries tables have room for; 0 bounds nothing.
type Sizes struct {
	// Addresses is that of Tables.Identities, Peers and Singles together, and of Blocks.
	Addresses int
	// Policies and Ports are those of the tables of these names.
	Policies, Ports int
}

// Bound says how much room there is. In the tables of addresses pods come first. Of what they leave, and of the other tables, the namespaces whose
// policies need most give way, down to one limit for all; within a namespace policies have theirs by the order of their names. The pods that a
// policy selects that does not fit are closed, and nobody else is.
func (c *Compiler) Bound(s Sizes) { c.bounds.sizes = s }

// blocksOf counts the entries that the blocks of a policy may become.
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

// takeBounded finds what holds for each pod of this node, and closes those for which there is no room.
func (c *Compiler) takeBounded(w *world) []Problem {
	problems := c.takeSubjects(w)
	refused := c.overflow(w)
	same := len(refused) == len(c.bounds.refused)
	for p, reason := range refused {
		same = same && c.bounds.refused[p] == reason
	}
	if same {
		return problems
	}
	c.bounds.refused = refused
	c.subjects.byNamespace = nil // which policies close whom is another
	return c.takeSubjects(w)
}

// overflow gives the policies that select pods here and whose blocks do not fit.
func (c *Compiler) overflow(w *world) map[*cluster.NetworkPolicy]string {
	if c.bounds.sizes.Addresses == 0 {
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
	if total == 0 {
		c.bounds.pods, c.bounds.taken = cluster.List[*cluster.Pod]{}, 0
		return nil
	}
	room := c.bounds.sizes.Addresses - len(w.own) - c.bounds.countPods(w.snapshot.Pods)
	if total <= room {
		return nil
	}
	var wanted []int
	for _, n := range spaces {
		wanted = append(wanted, n)
	}
	limit := fair.Limit(room, wanted)
	var over []*cluster.NetworkPolicy
	for p := range selecting {
		if spaces[p.Namespace] > limit {
			over = append(over, p)
		}
	}
	slices.SortFunc(over, func(a, b *cluster.NetworkPolicy) int { return a.Key().Compare(b.Key()) })
	refused, had := map[*cluster.NetworkPolicy]string{}, map[string]int{}
	for _, p := range over {
		n := selecting[p]
		if n == 0 || had[p.Namespace]+n <= limit {
			had[p.Namespace] += n
			continue
		}
		refused[p] = fmt.Sprintf("its %d ipBlocks and exceptions do not fit: namespace %q asks for %d, and there is room for %d beside the addresses of pods (--identities-max)",
			n, p.Namespace, spaces[p.Namespace], max(limit, 0))
	}
	return refused
}

// wrong says why a policy closes the pods that it selects; empty if it does not.
func (c *Compiler) wrong(p *cluster.NetworkPolicy) string {
	if p.Wrong != "" {
		return p.Wrong
	}
	if reason := c.bounds.refused[p]; reason != "" {
		return reason
	}
	return c.bounds.entries.refused[p]
}
