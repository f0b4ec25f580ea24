package policy

import (
	"maps"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// entryLimits keep the rules of one namespace from using the capacity that others need in Tables.Policies and Tables.Ports. The
// demand is known only after compiling: a pass that exceeds the limit is repeated without the rules that need most.
type entryLimits struct {
	// rejected are the policies whose rules are left out, with the reason. The pods that they select are isolated.
	rejected map[*cluster.NetworkPolicy]string
	// policies and locals are those of the last pass with rejected policies.
	policies []*cluster.NetworkPolicy
	locals   []LocalPod
	// needed and groups are the numbers of entries and of pod groups at the last rejection.
	needed, groups int
	// counted is how many entries of Tables.Policies this pass has made. If it is far over the limit, part are the identities
	// with entries; otherwise nil.
	counted int
	part    map[*numbered[*identity]]bool
	backoff backoff
}

// entryRounds is how often a pass is repeated. From round lastHalf on, all policies of a namespace are rejected together. The
// rejections of the first entryReturns rounds are tried once more at the end.
const (
	entryRounds  = 16
	lastHalf     = 8
	entryReturns = 2
)

// overLimit reports whether this pass has made more entries than the table's capacity.
func (b *limits) overLimit() bool {
	return b.sizes.Policies > 0 && b.entries.counted > b.sizes.Policies
}

// farOverLimit reports whether to stop making entries to save memory.
func (b *limits) farOverLimit() bool {
	const times = 4
	return b.sizes.Policies > 0 && b.entries.counted > times*b.sizes.Policies
}

// reconsider clears rejected if a change may have made capacity: something was removed.
func (c *Compiler) reconsider(snapshot *cluster.Snapshot, local *Local) {
	b := &c.limits.entries
	if len(b.rejected) == 0 {
		return
	}
	mayFit := b.backoff.postponed || b.policyRemoved(snapshot.NetworkPolicies) || b.left(local.Pods)
	if mayFit && b.backoff.isActive() {
		c.keepRejected(snapshot.NetworkPolicies)
		b.backoff.postponed = len(b.rejected) > 0
		return
	}
	b.policies, b.locals = snapshot.NetworkPolicies, local.Pods
	if mayFit {
		b.backoff.postponed, b.backoff.searching = false, true
		c.setRejected(nil)
	}
}

// hasShrunk reports whether the table, or the cluster, has become a quarter smaller since the last rejection. Rejected policies
// have no entries that would show whether their pods still exist.
func (c *Compiler) hasShrunk(tables *Tables) bool {
	const quarters = 4
	b := &c.limits.entries
	if len(b.rejected) == 0 || c.limits.overLimit() {
		return false
	}
	entries, groups := len(tables.Policies)+len(tables.Ports), c.peers.countGroups()
	return entries*quarters < b.needed*(quarters-1) || groups*quarters < b.groups*(quarters-1)
}

// policyRemoved reports whether a policy is gone, or changed in a namespace with rejected policies.
func (b *entryLimits) policyRemoved(policies []*cluster.NetworkPolicy) (policyRemoved bool) {
	rejected := map[string]bool{}
	for p := range b.rejected {
		rejected[p.Namespace] = true
	}
	cluster.Differences(cluster.ListOf(b.policies...), cluster.ListOf(policies...), func(before, after *cluster.NetworkPolicy) {
		policyRemoved = policyRemoved || after == nil || rejected[after.Namespace]
	})
	return policyRemoved
}

// left reports whether a local pod is gone.
func (b *entryLimits) left(locals []LocalPod) bool {
	type name struct {
		pod cluster.Key
		uid string
	}
	here := make(map[name]bool, len(locals))
	for _, pod := range locals {
		here[name{pod.Pod, pod.UID}] = true
	}
	for _, pod := range b.locals {
		if !here[name{pod.Pod, pod.UID}] {
			return true
		}
	}
	return false
}

func (c *Compiler) setRejected(rejected map[*cluster.NetworkPolicy]string) {
	c.limits.entries.rejected = rejected
	c.subjects.byNamespace = nil // the policies that isolate each pod have changed
}

// fitEntries rejects policies until the tables fit.
func (c *Compiler) fitEntries(snapshot *cluster.Snapshot, local *Local, again func() (*Tables, []Problem)) (*Tables, []Problem) {
	b := &c.limits.entries
	tables, problems := again()
	switch empty := c.hasShrunk(tables); {
	case empty && b.backoff.isActive():
		b.backoff.postponed = true
	case empty:
		b.backoff.searching = true
		c.setRejected(nil)
		tables, problems = again()
	}
	before := len(b.rejected)
	tables, problems = c.rejectChanged(tables, problems, again)
	var rounds []map[*cluster.NetworkPolicy]string
	for round := range entryRounds + 1 {
		rejected := c.excess(tables, round)
		if len(rejected) == 0 {
			break
		}
		b.backoff.searching = true
		rounds = append(rounds, maps.Clone(rejected))
		maps.Copy(rejected, b.rejected)
		c.setRejected(rejected)
		tables, problems = again()
	}
	for n := range min(len(rounds)-1, entryReturns) {
		tables, problems = c.restore(rounds[n], tables, problems, again)
	}
	if len(b.rejected) > before {
		b.policies, b.locals = snapshot.NetworkPolicies, local.Pods
		b.needed, b.groups = len(tables.Policies)+len(tables.Ports), c.peers.countGroups()
	}
	return tables, problems
}

// restore accepts the policies that one round rejected if they fit: later rejections may have been enough.
func (c *Compiler) restore(round map[*cluster.NetworkPolicy]string, tables *Tables, problems []Problem, again func() (*Tables, []Problem)) (*Tables, []Problem) {
	rejected := c.limits.entries.rejected
	fewer := maps.Clone(rejected)
	maps.DeleteFunc(fewer, func(p *cluster.NetworkPolicy, _ string) bool { return round[p] != "" })
	c.setRejected(fewer)
	if t, p := again(); len(c.overflowing(t)) == 0 {
		return t, p
	}
	c.setRejected(rejected)
	return again()
}

// capacity returns that of a table, in entries; 0 is no limit.
func (b *limits) capacity(table int) int { return [2]int{b.sizes.Policies, b.sizes.Ports}[table] }

// overflowing returns the tables that exceed their capacity.
func (c *Compiler) overflowing(t *Tables) (tables []int) {
	if c.limits.overLimit() {
		tables = append(tables, tablePolicies)
	}
	size := c.limits.sizes.Ports
	ports := size > 0 && !c.limits.overLimit() && len(t.Ports) > size // otherwise they are those of the previous pass
	for _, s := range c.rules.sets {
		ports = ports || size > 0 && s.value.tooLong
	}
	if ports {
		tables = append(tables, tablePorts)
	}
	return tables
}

// excess returns the policies to reject next so that the tables fit or come closer to it; none if they fit.
func (c *Compiler) excess(t *Tables, round int) map[*cluster.NetworkPolicy]string {
	rejected := map[*cluster.NetworkPolicy]string{}
	var d *demands
	for _, table := range c.overflowing(t) {
		capacity := c.limits.capacity(table)
		if d == nil {
			d = c.demands()
		}
		switch {
		case round == entryRounds:
			d.reject(rejected, table, 0) // all that exceed the limit
		case d.sum(table) > capacity:
			d.reject(rejected, table, capacity)
		default:
			c.rejectSplitters(rejected, d, round >= lastHalf)
		}
	}
	return rejected
}
