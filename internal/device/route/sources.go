package route

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// SourcesMax bounds the Sources of a node. Each has a table from sourceTableFirst on.
const (
	SourcesMax       = 64
	sourceTableFirst = 19000
)

// Source routes what some pods of this node send. Routes of table main come first, except default routes.
type Source struct {
	// Addresses are those of the pods. Of two Sources with one address the first has it. The node itself must send from none of them.
	Addresses []netip.Addr
	// Within are prefixes that contain most of Addresses: packets with other sources skip the rules of each address.
	Within []netip.Prefix
	// Routes are those beyond table main. Their Table is not used. A Source without routes has no table: its packets only look up
	// TunnelTable first.
	Routes []Route
}

func isSourceTable(table int) bool {
	return table >= sourceTableFirst && table < sourceTableFirst+SourcesMax
}

// SyncSources makes Beeline's tables and rules of Sources equal to want. It returns how many routes and rules it added, replaced or deleted,
// and the table of each Source; 0 for one with routes and without a table, which is an error. With tunnels the packets look up TunnelTable first, also those of a
// Source without a table. Tables that hold a route or have a rule of others are not used. A Source with an address keeps its table: a route that changes is replaced in place.
func SyncSources(want []Source, tunnels bool, present Table) (tables []int, changed int, err error) {
	rules, err := listRules()
	if err != nil {
		return nil, 0, err
	}
	taken, had := present.foreignTables(), map[netip.Prefix]int{}
	for _, listed := range rules {
		switch r := parseRule(listed); {
		case listed.Protocol != rtnl.Protocol:
			taken[listed.Table] = true
		case r.priority == sourcePriority:
			had[r.from] = r.table
		}
	}
	tables, err = assignTables(want, had, taken)
	errs := []error{err}
	wantedRoutes := []Route(nil)
	for i, table := range tables {
		for _, r := range want[i].Routes {
			if r.Table = table; table != 0 {
				wantedRoutes = append(wantedRoutes, r)
			}
		}
	}
	for _, step := range []func() (int, error){
		func() (int, error) { return present.sync(wantedRoutes, isSourceTable) },
		func() (int, error) { return syncRules(rulesOf(want, tables, tunnels), isOfSource, false) },
	} {
		n, err := step()
		changed += n
		errs = append(errs, err)
	}
	return tables, changed, errors.Join(errs...)
}

// AddToSource adds one address to the Source with this table, or with 0 to one without routes, before SyncSources does.
func AddToSource(a netip.Addr, table int, tunnels bool) error {
	rules := map[rule]bool{}
	addSourceRules(rules, a, table, tunnels)
	// It may be outside of the prefixes of all Sources.
	addSkip(rules, hostPrefix(a))
	for _, r := range sorted(rules) {
		if err := netlink.RuleAdd(r.kernel()); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add rule %s: %w", r.kernel(), err)
		}
	}
	return nil
}

// RemoveFromSource removes an address from its Source. One that has none is no error.
func RemoveFromSource(a netip.Addr) error {
	var errs []error
	for _, priority := range []int{sourcePriority, sourceMainPriority, sourceTunnelPriority, sourceEnterPriority} {
		r := rule{family: rtnl.Family(a), priority: priority, from: hostPrefix(a)}
		k := r.kernel()
		k.Type = 0                       // whichever table it looks up
		absent := func(err error) bool { // the rule, or all rules
			return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
		}
		if err := netlink.RuleDel(k); err != nil && !absent(err) {
			errs = append(errs, fmt.Errorf("delete rule %s: %w", k, err))
		}
	}
	return errors.Join(errs...)
}

// assignTables gives each Source a table: the one that an address of it has, else a free one; 0 if none is left.
func assignTables(want []Source, had map[netip.Prefix]int, taken map[int]bool) (tables []int, err error) {
	tables = make([]int, len(want))
	for i, s := range want {
		if len(s.Routes) == 0 {
			continue
		}
		for _, a := range s.Addresses {
			if table := had[hostPrefix(a)]; tables[i] == 0 && isSourceTable(table) && !taken[table] {
				tables[i], taken[table] = table, true
			}
		}
	}
	var errs []error
	next := sourceTableFirst
	for i := range want {
		if tables[i] != 0 || len(want[i].Routes) == 0 {
			continue
		}
		for isSourceTable(next) && taken[next] {
			next++
		}
		if !isSourceTable(next) {
			errs = append(errs, fmt.Errorf("route what pods in %v send: none of the tables %d to %d is free", want[i].Within, sourceTableFirst, sourceTableFirst+SourcesMax-1))
			continue
		}
		tables[i], taken[next] = next, true
	}
	return tables, errors.Join(errs...)
}

// rulesOf are the rules of Sources with these tables.
func rulesOf(want []Source, tables []int, tunnels bool) map[rule]bool {
	all, had := map[rule]bool{}, map[netip.Addr]bool{}
	for i, s := range want {
		if tables[i] == 0 && !tunnels {
			continue
		}
		for _, p := range s.Within {
			addSkip(all, p.Masked())
		}
		for _, a := range s.Addresses {
			if had[a] {
				continue
			}
			had[a] = true
			addSourceRules(all, a, tables[i], tunnels)
			if !slices.ContainsFunc(s.Within, func(p netip.Prefix) bool { return p.Contains(a) }) {
				addSkip(all, hostPrefix(a))
			}
		}
	}
	return all
}

// addSkip adds the rules by which packets whose source is in none of the prefixes skip those of each address.
func addSkip(all map[rule]bool, within netip.Prefix) {
	family := rtnl.Family(within.Addr())
	if family == unix.AF_INET6 && !sysctl.HasIPv6() {
		return
	}
	all[rule{family: family, priority: sourceEnterPriority, from: within, skipTo: sourceBeginPriority}] = true
	all[rule{family: family, priority: sourceSkipPriority, skipTo: sourceEndPriority}] = true
	all[rule{family: family, priority: sourceBeginPriority}] = true
	all[rule{family: family, priority: sourceEndPriority}] = true
}

// addSourceRules adds the rules of one address.
func addSourceRules(all map[rule]bool, a netip.Addr, table int, tunnels bool) {
	family, from := rtnl.Family(a), hostPrefix(a)
	if family == unix.AF_INET6 && !sysctl.HasIPv6() {
		return
	}
	if tunnels {
		all[rule{family: family, priority: sourceTunnelPriority, from: from, table: TunnelTable}] = true
	}
	if table == 0 {
		return
	}
	all[rule{family: family, priority: sourceMainPriority, from: from, table: unix.RT_TABLE_MAIN}] = true
	all[rule{family: family, priority: sourcePriority, from: from, table: table}] = true
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func isOfSource(r rule) bool {
	return r.priority >= sourceEnterPriority && r.priority <= sourceEndPriority
}

// foreignTables are the tables of Sources with routes of others.
func (t Table) foreignTables() map[int]bool {
	all := map[int]bool{}
	for _, r := range t.all {
		if !r.ours() && isSourceTable(r.Table) {
			all[r.Table] = true
		}
	}
	return all
}

// IsOfPod reports whether an RTM_NEWRULE or RTM_DELRULE message is of a rule that AddToSource adds or RemoveFromSource deletes.
func IsOfPod(message []byte) bool {
	const fixed = unix.SizeofRtMsg // struct fib_rule_hdr has the same layout
	if len(message) < fixed {
		return false
	}
	var protocol []byte
	var priority uint32
	err := rtnl.EachAttribute(message[fixed:], func(kind uint16, value []byte) error {
		switch kind {
		case nl.FRA_PRIORITY:
			return rtnl.ReadNumber(value, &priority)
		case nl.FRA_PROTOCOL:
			protocol = value
		}
		return nil
	})
	bits := map[uint8]uint8{unix.AF_INET: 32, unix.AF_INET6: 128}[message[0]]
	return err == nil && bytes.Equal(protocol, []byte{rtnl.Protocol}) && bits != 0 && message[2] == bits && isOfSource(rule{priority: int(priority)})
}
