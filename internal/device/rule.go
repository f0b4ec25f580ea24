package device

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TunnelTable is the routing table that only what comes from pods is looked up in: an address of a node is behind a
// tunnel for them, and on the way to the tunnel's other end for everybody else. Its number is Protocol's.
const TunnelTable = Protocol

// tunnelPriority puts the rules for TunnelTable behind that for local addresses (0) and before table main (32766).
const tunnelPriority = 190

// SyncRules makes the rules with Protocol, but for those of SyncClosed, be exactly those that look up in TunnelTable what comes
// from the given prefixes, and returns how many it added or deleted. Rules of others stay as they are.
func SyncRules(sources []netip.Prefix) (changed int, err error) {
	wanted := map[netip.Prefix]bool{}
	for _, p := range sources {
		wanted[p.Masked()] = true
	}
	present, err := ourRules()
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, rule := range present {
		if isClosedRule(rule) {
			continue
		}
		from, ok := prefixOf(rule.Src)
		if ok && wanted[from] && rule.Table == TunnelTable && rule.Priority == tunnelPriority {
			delete(wanted, from) // a second one like it is deleted
			continue
		}
		if err := netlink.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("delete rule %s: %w", rule, err))
			continue
		}
		changed++
	}
	for from := range wanted {
		if err := netlink.RuleAdd(tunnelRule(from)); err != nil {
			errs = append(errs, fmt.Errorf("add rule for %s: %w", from, err))
			continue
		}
		changed++
	}
	return changed, errors.Join(errs...)
}

func tunnelRule(from netip.Prefix) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Src, rule.Priority = familyOf(from.Addr()), ipNetOf(from), tunnelPriority
	rule.Table, rule.Protocol = TunnelTable, Protocol
	return rule
}

// ourRules lists the rules with Protocol, both families.
func ourRules() ([]netlink.Rule, error) {
	var ours []netlink.Rule
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := complete(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // a kernel without IPv6, or without rules: there are none of ours
		}
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		for _, rule := range list {
			if rule.Protocol == Protocol {
				rule.Family = family
				ours = append(ours, rule)
			}
		}
	}
	return ours, nil
}
