package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// TunnelTable is the routing table for packets from pods only: they reach a node's address through the tunnel, while the node itself
// (and the tunnel's outer packets) reach it directly.
const TunnelTable = rtnl.Protocol

// tunnelPriority puts the rules for TunnelTable behind the one for local addresses (0) and before table main (32766).
const tunnelPriority = 190

// SyncTunnelRules makes Beeline's rules, except those of SyncBlackholes, equal to one rule for each source prefix that looks up
// TunnelTable. It returns how many rules it added or deleted. Rules of others stay.
func SyncTunnelRules(sources []netip.Prefix) (changed int, err error) {
	missing := map[netip.Prefix]bool{}
	for _, p := range sources {
		missing[p.Masked()] = true
	}
	present, err := ourRules()
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, rule := range present {
		if isBlackhole(rule) {
			continue
		}
		from, ok := rtnl.Prefix(rule.Src)
		if ok && missing[from] && rule.Table == TunnelTable && rule.Priority == tunnelPriority {
			delete(missing, from) // so that a duplicate is deleted
			continue
		}
		if err := netlink.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("delete rule %s: %w", rule, err))
			continue
		}
		changed++
	}
	for from := range missing {
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
	rule.Family, rule.Src, rule.Priority = rtnl.Family(from.Addr()), rtnl.IPNet(from), tunnelPriority
	rule.Table, rule.Protocol = TunnelTable, rtnl.Protocol
	return rule
}

// ourRules lists Beeline's rules of both families.
func ourRules() ([]netlink.Rule, error) {
	var ours []netlink.Rule
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := rtnl.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // the kernel has no IPv6, or no rules
		}
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		for _, rule := range list {
			if rule.Protocol == rtnl.Protocol {
				rule.Family = family
				ours = append(ours, rule)
			}
		}
	}
	return ours, nil
}
