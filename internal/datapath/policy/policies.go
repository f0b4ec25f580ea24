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

// Table are the tables that NetworkPolicies are compiled into. The agent is their only writer; its methods may be called
// from several goroutines.
//
// What the maps hold is remembered, and read from them once: an agent that starts again writes only what differs.
type Table struct {
	// mu is held during a Sync, and guards what follows.
	mu   sync.Mutex
	read atomic.Bool // what the maps hold is known
	// identities, singles and peers are parts of one map. They are apart since singles may be many and change seldom, and peers are most
	// and change often.
	identities, singles identityTable
	peers               peerTable
	blocks              policyTable[netip.Prefix, policy.Identity, bpf.IdentityCidrKey, uint32]
	policies            policyTable[policy.Peer, policy.Ports, bpf.PolicyKey, uint32]
	ports               policyTable[policy.PortPrefix, policy.Policy, bpf.PolicyPortKey, uint32]
	sessions            *ebpf.Map
	generation          *table.Generation

	// identified says that the datapath remembers nobody whom identities, singles and blocks do not name any more: see identify.
	identified bool
	// moved says that the node has other addresses than decisions were made by: see identify. The programs of a new agent begin without decisions.
	moved bool

	// wanted is what the tables have last said of pods, and unfinished are their sets of which something did not fit.
	wanted     map[netip.Addr]policy.Sets
	unfinished map[policy.Set]bool
	// given are the blocks of the last Sync, and guarded what they became.
	given, guarded map[netip.Prefix]policy.Identity

	// podsMu guards pods and held, so that Close does not wait for a Sync. It may be taken while mu is held, as may settling.
	podsMu sync.Mutex
	pods   policyTable[netip.Addr, policy.Sets, bpf.Address, bpf.PolicyPod]
	// held are closed whatever the tables say.
	held map[netip.Addr]bool

	settling sync.Mutex
	// settled says that sessions are judged by what the maps hold: see settle.
	settled bool
}

// identityTable is a part of the map of identities.
type identityTable = policyTable[netip.Addr, policy.Identity, bpf.Address, uint32]

// closed is what holds for a pod of which it is not known what governs it.
var closed = policy.Sets{Ingress: policy.DenyAll, Egress: policy.DenyAll}

// Sync puts tables into force and nothing else, and says how many entries it touched. While it runs, what is judged is what the old
// tables or the new ones say; for a moment it may be that less is allowed, but never more than one of them does. Two cases are left out: of
// two pods here that both had rules and get others, one may have its new ones a moment, until the map of pods is written, before the other;
// and a packet that is being judged in that very moment may meet the old rules of its sender and the new ones of its receiver.
// Packets of sessions that are known already are judged again afterwards, if anything may have become forbidden.
//
// What does not fit is a *SyncError: pods whose rules are not all there are closed in that direction, and everything else
// is in force. The next Sync tries again. Any other error says that even that may not be so.
func (p *Table) Sync(t *policy.Tables) (changed int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.remember(); err != nil {
		return 0, err
	}
	if !sameMap(p.given, t.Blocks) {
		p.given, p.guarded = t.Blocks, guarded(t.Blocks)
	}
	tables := *t
	tables.Blocks, p.wanted = p.guarded, t.Pods
	t = &tables
	p.divide(t)
	first, err := p.apply(t)
	if err != nil && first.deleted > 0 {
		var second applied
		second, err = p.apply(t) // what was deleted may have made room
		first.add(second)
	}
	return first.changed + first.deleted, errors.Join(err, p.settle(first.forbids))
}

// settle has sessions judged anew if something may have become forbidden, now or before a settle that failed. It is owed at the
// start too: an earlier agent may have been killed between its last change and this.
func (p *Table) settle(forbids bool) error {
	p.settling.Lock()
	defer p.settling.Unlock()
	p.settled = p.settled && !forbids
	if p.settled {
		return nil
	}
	if err := p.generation.AdvanceRevision(); err != nil {
		return err
	}
	p.settled = true
	return nil
}

// identify has the datapath ask anew who is behind an address, if that may have changed, now or before an identify that failed. It is
// owed at the start as settle is. What came from an address of the node itself was decided by that: it is decided anew where those are others.
func (p *Table) identify(changed bool) error {
	p.identified = p.identified && !changed
	if p.identified {
		return nil
	}
	if err := p.generation.AdvanceIdentities(); err != nil {
		return err
	}
	if p.moved {
		if err := p.generation.Advance(); err != nil {
			return err
		}
	}
	p.identified, p.moved = true, false
	return nil
}

// applied is what became of one attempt to put tables into force.
type applied struct {
	changed, deleted int
	// forbids says that something may have become forbidden that was allowed.
	forbids bool
}

func (a *applied) add(b applied) {
	a.changed, a.deleted, a.forbids = a.changed+b.changed, a.deleted+b.deleted, a.forbids || b.forbids
}

// apply writes what is added before what refers to it, and deletes in the opposite order. Whom the datapath remembers is forgotten
// between the steps, so that it is never behind them.
func (p *Table) apply(t *policy.Tables) (a applied, err error) {
	ports, policies := p.ports.write(t.Ports), p.policies.write(t.Policies)
	identities := p.identities.write(t.Identities) // pods before blocks: they share a map
	p.moved = p.moved || identities.changed+identities.added > 0
	identities.add(p.peers.write(t.Peers))
	singles := p.singles.write(t.Singles)
	blocks := p.blocks.write(t.Blocks)
	a.changed = ports.changed + ports.added + policies.changed + policies.added + singles.changed + singles.added +
		identities.changed + identities.added + blocks.changed + blocks.added
	// That a pod is new forbids nothing, nor that somebody is told apart who has been nobody: rules only ever add. But a part that
	// blocks except may be new, or what it is allowed.
	a.forbids = ports.changed+policies.changed+singles.changed+singles.added+identities.changed+blocks.changed+blocks.added > 0
	// Nor does it forbid anything to forget whom the datapath remembers, but what was judged meanwhile may have been judged by that.
	a.forbids = a.forbids || !p.identified
	named := singles.changed + singles.added + identities.changed + identities.added + blocks.changed + blocks.added
	if err := p.identify(named > 0); err != nil {
		return a, err
	}

	p.unfinished = nil
	err = errors.Join(ports.err, policies.err, singles.err, identities.err, blocks.err)
	if err != nil {
		p.unfinished = p.incomplete(t, ports.missing, policies.missing, append(singles.missing, identities.missing...), blocks.missing)
		err = &SyncError{Sets: slices.Sorted(maps.Keys(p.unfinished)), Pods: p.concerned(t.Pods), Err: err}
	}
	p.podsMu.Lock()
	n, errPods := p.setPods(p.podsFor(t.Pods))
	p.podsMu.Unlock()
	a.add(n)
	if errPods != nil {
		return a, errors.Join(err, errPods) // pods may still need what would be deleted
	}

	for _, trim := range []func() (int, error){
		func() (int, error) { return p.blocks.trim(t.Blocks) },
		func() (int, error) {
			n, err := p.identities.trim(t.Identities)
			p.moved = p.moved || n > 0
			return n, err
		},
		func() (int, error) { return p.peers.trim(t.Peers) },
		func() (int, error) { return p.singles.trim(t.Singles) },
		func() (int, error) { return 0, p.identify(a.deleted > 0) },
		func() (int, error) { return p.policies.trim(t.Policies) },
		func() (int, error) { return p.ports.trim(t.Ports) },
	} {
		n, e := trim()
		a.deleted += n
		a.forbids = a.forbids || n > 0
		err = errors.Join(err, e)
	}
	return a, err
}

// podsFor gives what is to be in the map of pods.
func (p *Table) podsFor(pods map[netip.Addr]policy.Sets) map[netip.Addr]policy.Sets {
	all := make(map[netip.Addr]policy.Sets, len(pods)+len(p.held))
	for a, sets := range pods {
		all[a] = p.whole(sets)
	}
	for a := range p.held {
		all[a] = closed
	}
	return all
}

// whole closes the directions whose set the last Sync could not write all of.
func (p *Table) whole(sets policy.Sets) policy.Sets {
	if p.unfinished[sets.Ingress] {
		sets.Ingress = policy.DenyAll
	}
	if p.unfinished[sets.Egress] {
		sets.Egress = policy.DenyAll
	}
	return sets
}

// setPods makes the map of pods what it is to be, step by step (podSteps). Decisions remember whether a pod is in it.
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
			err = errors.Join(err, write(pods)) // there is room now
		}
	}
	return a, errors.Join(err, w.err)
}

// Close closes pods in both directions until Release, whatever tables say meanwhile: before they are attached, while nobody knows what
// governs them. An agent that starts again has to close anew what no Sync has told it of. It does not wait for a Sync but the first one.
func (p *Table) Close(addresses []netip.Addr) error {
	if err := p.begin(); err != nil {
		return err
	}
	p.podsMu.Lock()
	defer p.podsMu.Unlock()
	pods := maps.Clone(p.pods.has)
	for _, a := range addresses {
		a = a.Unmap()
		p.held[a] = true
		pods[a] = closed
	}
	return p.setAndAdvance(pods)
}

// Release lets the tables of the last Sync decide again about pods that were closed by Close: to be called after a
// Sync whose tables know them, or when they are gone. Addresses that are not closed are no error.
func (p *Table) Release(addresses []netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.remember(); err != nil {
		return err
	}
	p.podsMu.Lock()
	defer p.podsMu.Unlock()
	pods := maps.Clone(p.pods.has)
	for _, a := range addresses {
		a = a.Unmap()
		if !p.held[a] {
			continue
		}
		delete(p.held, a)
		delete(pods, a)
		if sets, ok := p.wanted[a]; ok {
			pods[a] = p.whole(sets)
		}
	}
	return p.setAndAdvance(pods)
}

// podSteps gives what the map of pods is to have one after the other; what is not in then is deleted later. Both ends of a connection may be
// pods here, and what the one forbade until now the other may forbid from now on. So directions that become isolated, or closed, are so
// before any other changes, and those that are isolated or closed no more stay so until all others have changed.
func podSteps(now, then map[netip.Addr]policy.Sets) []map[netip.Addr]policy.Sets {
	closes := func(now, then policy.Set) bool { return now == policy.NotIsolated || then == policy.DenyAll }
	opens := func(now, then policy.Set) bool { return then == policy.NotIsolated || now == policy.DenyAll }
	closed := func(now, then policy.Set) policy.Set {
		if closes(now, then) {
			return then
		}
		return now
	}
	changed := func(now, then policy.Set) policy.Set {
		if !closes(now, then) && opens(now, then) {
			return now
		}
		return then
	}
	first, second := maps.Clone(now), maps.Clone(now)
	for a, sets := range then {
		was := now[a]
		first[a] = policy.Sets{Ingress: closed(was.Ingress, sets.Ingress), Egress: closed(was.Egress, sets.Egress)}
		second[a] = policy.Sets{Ingress: changed(was.Ingress, sets.Ingress), Egress: changed(was.Egress, sets.Egress)}
	}
	return []map[netip.Addr]policy.Sets{first, second, then}
}

func (p *Table) setAndAdvance(pods map[netip.Addr]policy.Sets) error {
	a, err := p.setPods(pods)
	if err = errors.Join(err, p.settle(a.forbids)); err != nil {
		return fmt.Errorf("close or release pods: %w", err)
	}
	return nil
}
