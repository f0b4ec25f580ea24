// Package policy keeps the tables that NetworkPolicies are compiled into by internal/policy: pods, identities, CIDRs, sets
// and ports.
package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Table are the policy tables of the datapath. The agent is their only writer. Its methods are safe for concurrent
// use.
//
// Table reads the maps once and then tracks their content, so a restarted agent writes only differences.
type Table struct {
	// mu is held during a Sync and guards the fields below.
	mu         sync.Mutex
	read       atomic.Bool // the maps have been read
	identities identityTable
	blocks     policyTable[netip.Prefix, policy.Identity, bpf.IdentityCidrKey, uint32]
	policies   policyTable[policy.Peer, policy.Ports, bpf.PolicyKey, uint32]
	ports      policyTable[policy.PortPrefix, policy.Policy, bpf.PolicyPortKey, uint32]
	conntrack  *ebpf.Map
	generation *table.Generation

	// node are the node's addresses in the last complete Sync. nodeChanged says that they have changed since the flow
	// cache was flushed: see flushNode. A new agent's programs start with an empty flow cache.
	node        map[netip.Addr]policy.Identity
	nodeChanged bool

	// wanted are the pods of the last Sync, and incompleteSets the rule sets that did not fit.
	wanted         map[netip.Addr]policy.Sets
	incompleteSets map[policy.Set]bool
	// given are the ipBlocks of the last Sync, and guarded those with the IPv4 guard.
	given, guarded map[netip.Prefix]policy.Identity

	// podsMu guards pods and isolated, so that Close does not wait for a Sync. Lock order: mu, podsMu, revisionMu.
	podsMu sync.Mutex
	pods   policyTable[netip.Addr, policy.Sets, bpf.Address, bpf.PolicyPod]
	// isolated are denied all traffic, whatever the tables say.
	isolated map[netip.Addr]bool

	revisionMu sync.Mutex
	// revised says that the revision has advanced since something was last forbidden: see revise.
	revised bool
}

// denyAll are the sets of a pod whose policies are not known.
var denyAll = policy.Sets{Ingress: policy.DenyAll, Egress: policy.DenyAll}

// Sync applies tables and returns how many entries it changed. While it runs, packets are evaluated by the old tables
// or by the new ones. For a moment they may allow less than either, but never more than both. There are two
// exceptions. If two local pods both had rules and both get new ones, one may have its new rules before the
// other, until the map of pods is written. And a packet that is being evaluated at that moment may meet the sender's
// old rules and the receiver's new ones. If something may have become forbidden, established connections are
// re-evaluated afterwards.
//
// If entries do not fit, the error is a *SyncError: pods with incomplete rules are default-deny in that direction,
// and everything else is applied. The next Sync tries again. After any other error even that is not certain.
func (p *Table) Sync(t *policy.Tables) (changed int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.readMaps(); err != nil {
		return 0, err
	}
	if !sameMap(p.given, t.Blocks) {
		p.given, p.guarded = t.Blocks, guarded(t.Blocks)
	}
	tables := *t
	tables.Blocks, p.wanted = p.guarded, t.Pods
	t = &tables
	first, err := p.apply(t)
	if err != nil && first.deleted > 0 {
		var second applied
		second, err = p.apply(t) // the deletions may have freed entries
		first.add(second)
	}
	return first.changed + first.deleted, errors.Join(err, p.revise(first.forbids))
}

// revise makes the datapath re-evaluate established connections if something may have become forbidden, now or before
// a revise that failed. The first call always does: an earlier agent may have been killed between its last change and
// this.
func (p *Table) revise(forbids bool) error {
	p.revisionMu.Lock()
	defer p.revisionMu.Unlock()
	p.revised = p.revised && !forbids
	if p.revised {
		return nil
	}
	if err := p.generation.AdvanceRevision(); err != nil {
		return err
	}
	p.revised = true
	return nil
}

// flushNode flushes the flow cache if the node's addresses have changed: its entries depend on them.
func (p *Table) flushNode() error {
	if !p.nodeChanged {
		return nil
	}
	if err := p.generation.Advance(); err != nil {
		return err
	}
	p.nodeChanged = false
	return nil
}

// applied is the result of one attempt to apply tables.
type applied struct {
	changed, deleted int
	// forbids says that something that was allowed may have become forbidden.
	forbids bool
}

func (a *applied) add(b applied) {
	a.changed, a.deleted, a.forbids = a.changed+b.changed, a.deleted+b.deleted, a.forbids || b.forbids
}

// apply writes new entries before entries that refer to them, and deletes in the opposite order.
func (p *Table) apply(t *policy.Tables) (a applied, err error) {
	ports, policies := p.ports.write(t.Ports), p.policies.write(t.Policies)
	wanted, ofNode := t.Peers.With(t.Identities), !maps.Equal(t.Identities, p.node)
	identities := p.identities.write(wanted)
	p.nodeChanged = p.nodeChanged || ofNode && identities.changed+identities.added > 0
	blocks := p.blocks.write(t.Blocks)
	a.changed = ports.changed + ports.added + policies.changed + policies.added +
		identities.changed + identities.added + blocks.changed + blocks.added
	// A new pod forbids nothing, and neither does the identity of an address that had none, since rules only add. But
	// a new ipBlock may be an exception, and a changed entry may allow less.
	a.forbids = ports.changed+policies.changed+identities.changed+blocks.changed+blocks.added > 0
	if err := p.flushNode(); err != nil {
		return a, err
	}

	p.incompleteSets = nil
	err = errors.Join(ports.err, policies.err, identities.err, blocks.err)
	if err != nil {
		p.incompleteSets = p.incomplete(t, ports.missing, policies.missing, identities.missing, blocks.missing)
		err = &SyncError{Sets: slices.Sorted(maps.Keys(p.incompleteSets)), Pods: p.affectedPods(t.Pods), Err: err}
	}
	p.podsMu.Lock()
	n, errPods := p.setPods(p.podsFor(t.Pods))
	p.podsMu.Unlock()
	a.add(n)
	if errPods != nil {
		return a, errors.Join(err, errPods) // pods may still refer to what would be deleted
	}

	for _, trim := range []func() (int, error){
		func() (int, error) { return p.blocks.trim(t.Blocks) },
		func() (int, error) {
			n, err := p.identities.trim(wanted)
			p.nodeChanged = p.nodeChanged || ofNode && n > 0
			return n, err
		},
		func() (int, error) { return 0, p.flushNode() },
		func() (int, error) { return p.policies.trim(t.Policies) },
		func() (int, error) { return p.ports.trim(t.Ports) },
	} {
		n, e := trim()
		a.deleted += n
		a.forbids = a.forbids || n > 0
		err = errors.Join(err, e)
	}
	if err == nil {
		p.node = t.Identities
	}
	return a, err
}

// podsFor is the desired content of the map of pods.
func (p *Table) podsFor(pods map[netip.Addr]policy.Sets) map[netip.Addr]policy.Sets {
	all := make(map[netip.Addr]policy.Sets, len(pods)+len(p.isolated))
	for a, sets := range pods {
		all[a] = p.denyIncomplete(sets)
	}
	for a := range p.isolated {
		all[a] = denyAll
	}
	return all
}

// denyIncomplete denies all traffic in the directions whose set the last Sync could not write completely.
func (p *Table) denyIncomplete(sets policy.Sets) policy.Sets {
	if p.incompleteSets[sets.Ingress] {
		sets.Ingress = policy.DenyAll
	}
	if p.incompleteSets[sets.Egress] {
		sets.Egress = policy.DenyAll
	}
	return sets
}

// setPods brings the map of pods to its desired content, step by step (podSteps). Flow cache entries depend on it.
func (p *Table) setPods(pods map[netip.Addr]policy.Sets) (a applied, err error) {
	var w written[netip.Addr]
	write := func(step map[netip.Addr]policy.Sets) error {
		w = p.pods.write(step)
		if w.changed+w.added == 0 {
			return nil
		}
		a.changed += w.changed + w.added
		a.forbids = true
		return p.generation.Advance()
	}
	for _, step := range podSteps(p.pods.has, pods) {
		if err := write(step); err != nil {
			return a, err
		}
	}
	if a.deleted, err = p.pods.trim(pods); a.deleted > 0 {
		a.forbids = true
		err = errors.Join(err, p.generation.Advance())
		if w.err != nil {
			err = errors.Join(err, write(pods)) // the deletions have freed entries
		}
	}
	return a, errors.Join(err, w.err)
}

// Close denies pods all traffic until Release, whatever the tables say. Call it before a pod is attached, until its
// policies are known. A restarted agent has to close again the pods that no Sync has covered. Close waits for the
// first Sync only.
func (p *Table) Close(addresses []netip.Addr) error {
	if err := p.ensureRead(); err != nil {
		return err
	}
	p.podsMu.Lock()
	defer p.podsMu.Unlock()
	pods := maps.Clone(p.pods.has)
	for _, a := range addresses {
		a = a.Unmap()
		p.isolated[a] = true
		pods[a] = denyAll
	}
	return p.setAndAdvance(pods)
}

// Release ends Close: the tables of the last Sync apply again. Call it after a Sync whose tables have the pods, or
// when the pods are deleted. Addresses that are not closed are no error.
func (p *Table) Release(addresses []netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.readMaps(); err != nil {
		return err
	}
	p.podsMu.Lock()
	defer p.podsMu.Unlock()
	pods := maps.Clone(p.pods.has)
	for _, a := range addresses {
		a = a.Unmap()
		if !p.isolated[a] {
			continue
		}
		delete(p.isolated, a)
		delete(pods, a)
		if sets, ok := p.wanted[a]; ok {
			pods[a] = p.denyIncomplete(sets)
		}
	}
	return p.setAndAdvance(pods)
}

// podSteps are the successive contents of the map of pods; entries that the last step lacks are deleted later. Both
// ends of a connection may be local pods, and the policies of one end may take over from the other what they forbid.
// So directions that become isolated or deny-all change first, and directions that cease to be so change last.
func podSteps(now, then map[netip.Addr]policy.Sets) []map[netip.Addr]policy.Sets {
	restricts := func(now, then policy.Set) bool { return now == policy.NotIsolated || then == policy.DenyAll }
	relaxes := func(now, then policy.Set) bool { return then == policy.NotIsolated || now == policy.DenyAll }
	restricted := func(now, then policy.Set) policy.Set {
		if restricts(now, then) {
			return then
		}
		return now
	}
	changed := func(now, then policy.Set) policy.Set {
		if !restricts(now, then) && relaxes(now, then) {
			return now
		}
		return then
	}
	first, second := maps.Clone(now), maps.Clone(now)
	for a, sets := range then {
		was := now[a]
		first[a] = policy.Sets{Ingress: restricted(was.Ingress, sets.Ingress), Egress: restricted(was.Egress, sets.Egress)}
		second[a] = policy.Sets{Ingress: changed(was.Ingress, sets.Ingress), Egress: changed(was.Egress, sets.Egress)}
	}
	return []map[netip.Addr]policy.Sets{first, second, then}
}

func (p *Table) setAndAdvance(pods map[netip.Addr]policy.Sets) error {
	a, err := p.setPods(pods)
	if err = errors.Join(err, p.revise(a.forbids)); err != nil {
		return fmt.Errorf("close or release pods: %w", err)
	}
	return nil
}
