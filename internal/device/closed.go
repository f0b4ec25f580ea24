package device

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The rules for what is closed: what the node itself sends to an address is looked up in table main before the rest is dropped. Both come
// behind the rule for local addresses (0), by which everything reaches the node.
const (
	closedNodePriority = 188
	closedPriority     = 189
)

// Closed is what the host's stack forwards nothing of, for want of programs that judge it. What it drops gets no answer.
type Closed struct {
	// To are addresses to which nothing is forwarded that comes from elsewhere; what the node itself sends there goes on.
	To []netip.Addr
	// From are the names of devices from which nothing is forwarded, whatever its source; what is for the node itself arrives.
	From []string
}

// SyncClosed closes these and opens all others, unless keep says that those stay as they are. It returns how many rules it added or
// deleted. What is closed is so from its rule on, also for packets that are looked up by a program (bpf_fib_lookup); one that a program
// redirects meets no rule.
func SyncClosed(closed Closed, keep bool) (changed int, err error) {
	wanted := closed.rules()
	present, err := ourRules()
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, rule := range present {
		if !isClosedRule(rule) {
			continue
		}
		key, known := closedRuleOf(rule)
		if known && wanted[key] {
			delete(wanted, key) // a second one like it is deleted
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
	for key := range wanted {
		if err := netlink.RuleAdd(key.kernel()); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", key.name(), err))
			continue
		}
		changed++
	}
	return changed, errors.Join(errs...)
}

// closedRule is one of the rules for what is closed: to an address, or from a device.
type closedRule struct {
	family, priority int
	to               netip.Addr
	from             string
}

func (c Closed) rules() map[closedRule]bool {
	all := map[closedRule]bool{}
	for _, a := range c.To {
		a = a.Unmap()
		for _, priority := range []int{closedNodePriority, closedPriority} {
			all[closedRule{family: familyOf(a), priority: priority, to: a}] = true
		}
	}
	families := []int{unix.AF_INET}
	if HasIPv6() {
		families = append(families, unix.AF_INET6)
	}
	for _, name := range c.From {
		for _, family := range families {
			all[closedRule{family: family, priority: closedPriority, from: name}] = true
		}
	}
	return all
}

// closedRuleOf is the reverse of kernel. known is false for what that does not make.
func closedRuleOf(rule netlink.Rule) (c closedRule, known bool) {
	c = closedRule{family: rule.Family, priority: rule.Priority}
	if to, ok := prefixOf(rule.Dst); ok {
		c.to = to.Addr()
		return c, to.IsSingleIP()
	}
	c.from = rule.IifName
	return c, c.from != "" && rule.Priority == closedPriority
}

func (c closedRule) kernel() *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Protocol = c.family, c.priority, Protocol
	if c.from != "" {
		rule.IifName = c.from
	} else {
		rule.Dst = ipNetOf(netip.PrefixFrom(c.to, c.to.BitLen()))
	}
	if c.priority == closedNodePriority {
		rule.IifName, rule.Table = "lo", unix.RT_TABLE_MAIN // as which the kernel knows what the node sends
	} else {
		rule.Type = unix.RTN_BLACKHOLE
	}
	return rule
}

// name is what the rule closes.
func (c closedRule) name() string {
	if c.from != "" {
		return "what comes from " + c.from
	}
	return c.to.String()
}

func isClosedRule(rule netlink.Rule) bool {
	return rule.Priority == closedNodePriority || rule.Priority == closedPriority
}
