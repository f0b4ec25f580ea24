package device

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// secondTable plus the index of a second interface is its routing table in the pod, and the priority of the rules that lead there.
const secondTable = 1000

// IsSecond implements PodDevices.
func (podEnd) IsSecond(netns, ifName string) (second bool, err error) {
	err = ns.WithNetNSPath(netns, func(ns.NetNS) error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", ifName, err)
		}
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			routes, err := mainRoutes(family)
			if err != nil {
				return err
			}
			for _, r := range routes {
				dst, ok := rtnl.Prefix(r.Dst)
				isDefault := r.Dst == nil || ok && dst.Bits() == 0
				second = second || isDefault && r.LinkIndex != link.Attrs().Index && r.LinkIndex != 0
			}
		}
		return nil
	})
	return second, err
}

func mainRoutes(family int) ([]netlink.Route, error) {
	routes, err := rtnl.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return routes, nil
}

// addSecond makes the routes of a second interface: its networks leave by it, and so does all that is sent from its address, above all
// replies. Everything else stays with the first interface, also what is sent from that one's address to the networks: the node drops
// packets that leave by the wrong interface as spoofed.
func addSecond(index int, gateway netip.Addr, cfg PodConfig) error {
	if err := neigh.SetRouter(index, gateway, cfg.HostMAC); err != nil {
		return err
	}
	if err := keepOthers(index, rtnl.Family(gateway)); err != nil {
		return err
	}
	routes, rule, err := secondRoutes(index, gateway, cfg)
	if err != nil {
		return err
	}
	for _, r := range routes { // another interface may lead to the same network
		if err := netlink.RouteAdd(&r); err != nil && (r.Table != unix.RT_TABLE_MAIN || !errors.Is(err, unix.EEXIST)) {
			return fmt.Errorf("add route %s: %w", r, err)
		}
	}
	return addRule(rule)
}

// addRule adds a rule, unless an earlier interface has left it.
func addRule(rule *netlink.Rule) error {
	if err := netlink.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add rule %s: %w", rule, err)
	}
	return nil
}

// keepOthers gives the interfaces with default routes a table with their present routes, for what is sent from their addresses.
func keepOthers(index, family int) error {
	routes, err := mainRoutes(family)
	if err != nil {
		return err
	}
	for _, r := range routes {
		dst, ok := rtnl.Prefix(r.Dst)
		if r.Dst != nil && (!ok || dst.Bits() > 0) || r.LinkIndex == index || r.LinkIndex == 0 {
			continue
		}
		if err := keepOther(r.LinkIndex, family, routes); err != nil {
			return err
		}
	}
	return nil
}

func keepOther(index, family int, routes []netlink.Route) error {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("find device %d in the pod: %w", index, err)
	}
	addresses, err := rtnl.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, r := range routes {
		if r.LinkIndex != index {
			continue
		}
		r.Table = secondTable + index
		if r.Gw != nil {
			r.Flags |= int(netlink.FLAG_ONLINK)
		}
		if err := netlink.RouteAdd(&r); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add route %s: %w", r, err)
		}
	}
	for _, a := range addresses {
		if own, ok := rtnl.Prefix(a.IPNet); ok && !own.Addr().IsLinkLocalUnicast() {
			if err := addRule(ruleFrom(own.Addr(), index)); err != nil {
				return err
			}
		}
	}
	return nil
}

// ruleFrom leads what is sent from an address to the table of its interface.
func ruleFrom(a netip.Addr, index int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority, rule.Src = rtnl.Family(a), secondTable+index, secondTable+index, rtnl.IPNet(netip.PrefixFrom(a, a.BitLen()))
	return rule
}

// secondRoutes gives the routes of a second interface for the family of a gateway, that of its own table first, and the rule for it.
func secondRoutes(index int, gateway netip.Addr, cfg PodConfig) (routes []netlink.Route, rule *netlink.Rule, err error) {
	own, err := cfg.addressLike(gateway)
	if err != nil {
		return nil, nil, err
	}
	via := netlink.Route{LinkIndex: index, Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
	unspecified := netip.IPv6Unspecified()
	if gateway.Is4() {
		unspecified = netip.IPv4Unspecified()
	}
	all := via
	all.Dst, all.Table = rtnl.IPNet(netip.PrefixFrom(unspecified, 0)), secondTable+index
	routes = append(routes, all)
	for _, network := range cfg.Networks {
		if network.Addr().Is4() != gateway.Is4() {
			continue
		}
		r := via
		r.Dst, r.Src, r.Table = rtnl.IPNet(network), own.AsSlice(), unix.RT_TABLE_MAIN
		routes = append(routes, r)
	}
	return routes, ruleFrom(own, index), nil
}

// addressLike gives the address of the family of another one.
func (c PodConfig) addressLike(like netip.Addr) (netip.Addr, error) {
	for _, p := range c.Addresses {
		if p.Addr().Is4() == like.Is4() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no address of the family of gateway %s", like)
}

// checkSecond returns an error for the first difference from addSecond. Routes in the main table may be those of another interface.
func checkSecond(index int, gateway netip.Addr, cfg PodConfig) error {
	routes, rule, err := secondRoutes(index, gateway, cfg)
	if err != nil {
		return err
	}
	own, err := rtnl.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(rule.Family, &netlink.Route{Table: rule.Table, LinkIndex: index}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	if len(own) == 0 {
		return fmt.Errorf("the route %s is missing", routes[0])
	}
	rules, err := rtnl.Dump(func() ([]netlink.Rule, error) {
		return netlink.RuleListFiltered(rule.Family, rule, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_SRC)
	})
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	if len(rules) == 0 {
		return fmt.Errorf("the rule %s is missing", rule)
	}
	return nil
}
