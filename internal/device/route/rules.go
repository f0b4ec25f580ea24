package route

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// TunnelTable is the routing table for packets from pods only: they reach a node's address through the tunnel, while the node itself
// (and the tunnel's outer packets) reach it directly.
const TunnelTable = rtnl.Protocol

// Priorities of rules. All are behind the one for local addresses (0), so that the node stays reachable, and before table main (32766).
const (
	throughPriority = 187 // of SyncThrough
	// The first rule looks up the node's own packets to an address in table main, the second drops all others.
	fromNodePriority  = 188
	blackholePriority = 189
	tunnelPriority    = 190
	// Those of Sources. Packets with other source addresses skip from the second to the last one. Those between look up TunnelTable, table
	// main without its default routes, and the table of the Source, for each address of a pod. Begin and end do nothing: they are targets.
	sourceEnterPriority  = 191
	sourceSkipPriority   = 192
	sourceBeginPriority  = 193
	sourceTunnelPriority = 194
	sourceMainPriority   = 195
	sourcePriority       = 196
	sourceEndPriority    = 197
)

// rule is one of Beeline's rules.
type rule struct {
	family, priority int
	to, from         netip.Prefix
	// device is the ingress device, out the one that the sender of the packet has chosen.
	device, out string
	// table to look up; 0 for a rule that drops, skips or does nothing.
	table int
	// skipTo is the priority of the next rule to look at; 0 for other rules.
	skipTo int
}

// Blackholes says which forwarded packets the kernel drops, without an ICMP error, while no program enforces policy on them.
type Blackholes struct {
	// To are destination addresses. The node's own packets to them pass.
	To []netip.Addr
	// From are names of ingress devices. Packets to the node itself pass.
	From []string
}

// SyncBlackholes makes the blackhole rules equal to want; with keep it only adds. It returns how many rules it added or deleted. A
// rule applies at once, to bpf_fib_lookup as well, but not to packets that a program redirects without a lookup.
func SyncBlackholes(want Blackholes, keep bool) (changed int, err error) {
	return syncRules(want.rules(), isBlackhole, keep)
}

func isBlackhole(r rule) bool {
	return r.priority == fromNodePriority || r.priority == blackholePriority
}

func (b Blackholes) rules() map[rule]bool {
	all := map[rule]bool{}
	for _, a := range b.To {
		a = a.Unmap()
		family, to := rtnl.Family(a), netip.PrefixFrom(a, a.BitLen())
		// The ingress device of the node's own packets is lo.
		all[rule{family: family, priority: fromNodePriority, to: to, device: "lo", table: unix.RT_TABLE_MAIN}] = true
		all[rule{family: family, priority: blackholePriority, to: to}] = true
	}
	families := []int{unix.AF_INET}
	if sysctl.HasIPv6() {
		families = append(families, unix.AF_INET6)
	}
	for _, name := range b.From {
		for _, family := range families {
			all[rule{family: family, priority: blackholePriority, device: name}] = true
		}
	}
	return all
}

// SyncTunnelRules makes Beeline's rules, except those of SyncBlackholes, SyncSources and SyncThrough, equal to one rule for each source prefix that looks up
// TunnelTable. It returns how many rules it added or deleted. Rules of others stay.
func SyncTunnelRules(sources []netip.Prefix) (changed int, err error) {
	want := map[rule]bool{}
	for _, p := range sources {
		want[rule{family: rtnl.Family(p.Addr()), priority: tunnelPriority, from: p.Masked(), table: TunnelTable}] = true
	}
	return syncRules(want, func(r rule) bool { return !isBlackhole(r) && !isOfSource(r) && !isThrough(r) }, false)
}

// syncRules makes Beeline's rules of one kind equal to those missing; with keep it only adds. It deletes the last ones first and adds the first ones
// first: a rule that skips others has no effect until its target exists.
func syncRules(missing map[rule]bool, ofKind func(rule) bool, keep bool) (changed int, err error) {
	present, err := ourRules()
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, listed := range slices.Backward(present) {
		r := parseRule(listed)
		if missing[r] {
			delete(missing, r) // so that a duplicate is deleted
			continue
		}
		if keep || !ofKind(r) {
			continue
		}
		if err := netlink.RuleDel(&listed); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("delete rule %s: %w", listed, err))
			continue
		}
		changed++
	}
	for _, r := range sorted(missing) {
		if err := netlink.RuleAdd(r.kernel()); err != nil {
			errs = append(errs, fmt.Errorf("add rule %s: %w", r.kernel(), err))
			continue
		}
		changed++
	}
	return changed, errors.Join(errs...)
}

// sorted are rules by their priority.
func sorted(rules map[rule]bool) []rule {
	return slices.SortedFunc(maps.Keys(rules), func(a, b rule) int { return a.priority - b.priority })
}

// parseRule is the reverse of kernel.
func parseRule(listed netlink.Rule) rule {
	r := rule{family: listed.Family, priority: listed.Priority, device: listed.IifName, out: listed.OifName, table: listed.Table}
	r.to, _ = rtnl.Prefix(listed.Dst)
	r.from, _ = rtnl.Prefix(listed.Src)
	r.skipTo = max(0, listed.Goto)
	return r
}

func (r rule) kernel() *netlink.Rule {
	k := netlink.NewRule()
	k.Family, k.Priority, k.IifName, k.OifName, k.Table, k.Protocol = r.family, r.priority, r.device, r.out, r.table, rtnl.Protocol
	if r.to.IsValid() {
		k.Dst = rtnl.IPNet(r.to)
	}
	if r.from.IsValid() {
		k.Src = rtnl.IPNet(r.from)
	}
	switch {
	case r.skipTo != 0:
		k.Goto = r.skipTo
	case r.priority == sourceBeginPriority || r.priority == sourceEndPriority:
		k.Type = nl.FR_ACT_NOP
	case r.table == 0:
		k.Type = unix.RTN_BLACKHOLE
	case r.priority == sourceMainPriority:
		k.SuppressPrefixlen = 0
	}
	return k
}

// ourRules lists Beeline's rules of both families.
func ourRules() ([]netlink.Rule, error) {
	all, err := listRules()
	return slices.DeleteFunc(all, func(r netlink.Rule) bool { return r.Protocol != rtnl.Protocol }), err
}

// listRules lists the rules of both families.
func listRules() ([]netlink.Rule, error) {
	var all []netlink.Rule
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := rtnl.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // the kernel has no IPv6, or no rules
		}
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		for _, rule := range list {
			rule.Family = family
			all = append(all, rule)
		}
	}
	return all, nil
}
