package device

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The rules for an address that is closed: what the node itself sends there is looked up in table main before the rest is dropped. Both come
// behind the rule for local addresses (0).
const (
	closedNodePriority = 188
	closedPriority     = 189
)

// SyncClosed makes exactly these addresses ones to which the host's stack forwards nothing: what comes from elsewhere is dropped without an
// answer, and what the node itself sends goes on. It returns how many rules it added or deleted. An address is closed from its rule
// on, also for packets that are looked up by a program (bpf_fib_lookup); one that a program redirects to the pod's device meets no rule.
func SyncClosed(addresses []netip.Addr) (changed int, err error) {
	wanted := map[closedRule]bool{}
	for _, a := range addresses {
		for _, priority := range []int{closedNodePriority, closedPriority} {
			wanted[closedRule{a.Unmap(), priority}] = true
		}
	}
	present, err := ourRules()
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, rule := range present {
		if !isClosedRule(rule) {
			continue
		}
		to, ok := prefixOf(rule.Dst)
		key := closedRule{to.Addr(), rule.Priority}
		if ok && to.IsSingleIP() && wanted[key] {
			delete(wanted, key) // a second one like it is deleted
			continue
		}
		if err := netlink.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("delete rule %s: %w", rule, err))
			continue
		}
		changed++
	}
	for key := range wanted {
		if err := netlink.RuleAdd(key.kernel()); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", key.to, err))
			continue
		}
		changed++
	}
	return changed, errors.Join(errs...)
}

// closedRule is one of the rules for an address that is closed.
type closedRule struct {
	to       netip.Addr
	priority int
}

func (c closedRule) kernel() *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Dst = familyOf(c.to), ipNetOf(netip.PrefixFrom(c.to, c.to.BitLen()))
	rule.Priority, rule.Protocol = c.priority, Protocol
	if c.priority == closedNodePriority {
		rule.IifName, rule.Table = "lo", unix.RT_TABLE_MAIN // as which the kernel knows what the node sends
	} else {
		rule.Type = unix.RTN_BLACKHOLE
	}
	return rule
}

func isClosedRule(rule netlink.Rule) bool {
	return rule.Priority == closedNodePriority || rule.Priority == closedPriority
}
