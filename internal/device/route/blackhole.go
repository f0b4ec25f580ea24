package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// The first rule looks up the node's own packets to an address in table main, the second drops all others. Both come behind the rule
// for local addresses (0), so that the node stays reachable.
const (
	fromNodePriority  = 188
	blackholePriority = 189
)

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
	missing := want.rules()
	present, err := ourRules()
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, rule := range present {
		if !isBlackhole(rule) {
			continue
		}
		parsed, ok := parseBlackhole(rule)
		if ok && missing[parsed] {
			delete(missing, parsed) // so that a duplicate is deleted
			continue
		}
		if keep {
			continue
		}
		if err := netlink.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("delete rule %s: %w", rule, err))
			continue
		}
		changed++
	}
	for rule := range missing {
		if err := netlink.RuleAdd(rule.kernel()); err != nil {
			errs = append(errs, fmt.Errorf("add blackhole rule %s: %w", rule, err))
			continue
		}
		changed++
	}
	return changed, errors.Join(errs...)
}

// blackhole is one rule: to an address or from a device.
type blackhole struct {
	family, priority int
	to               netip.Addr
	from             string
}

func (b Blackholes) rules() map[blackhole]bool {
	all := map[blackhole]bool{}
	for _, a := range b.To {
		a = a.Unmap()
		for _, priority := range []int{fromNodePriority, blackholePriority} {
			all[blackhole{family: rtnl.Family(a), priority: priority, to: a}] = true
		}
	}
	families := []int{unix.AF_INET}
	if sysctl.HasIPv6() {
		families = append(families, unix.AF_INET6)
	}
	for _, name := range b.From {
		for _, family := range families {
			all[blackhole{family: family, priority: blackholePriority, from: name}] = true
		}
	}
	return all
}

// parseBlackhole is the reverse of kernel. ok is false for a rule that kernel never returns.
func parseBlackhole(rule netlink.Rule) (b blackhole, ok bool) {
	b = blackhole{family: rule.Family, priority: rule.Priority}
	if to, ok := rtnl.Prefix(rule.Dst); ok {
		b.to = to.Addr()
		return b, to.IsSingleIP()
	}
	b.from = rule.IifName
	return b, b.from != "" && rule.Priority == blackholePriority
}

func (b blackhole) kernel() *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Protocol = b.family, b.priority, rtnl.Protocol
	if b.from != "" {
		rule.IifName = b.from
	} else {
		rule.Dst = rtnl.IPNet(netip.PrefixFrom(b.to, b.to.BitLen()))
	}
	if b.priority == fromNodePriority {
		rule.IifName, rule.Table = "lo", unix.RT_TABLE_MAIN // the ingress device of the node's own packets
	} else {
		rule.Type = unix.RTN_BLACKHOLE
	}
	return rule
}

// String names what the rule drops.
func (b blackhole) String() string {
	if b.from != "" {
		return "from " + b.from
	}
	return "to " + b.to.String()
}

func isBlackhole(rule netlink.Rule) bool {
	return rule.Priority == fromNodePriority || rule.Priority == blackholePriority
}
