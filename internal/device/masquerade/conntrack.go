package masquerade

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forgetUntranslated makes connection tracking forget the connections of pods to the world that are not
// translated: those that began while the rules were missing or different. NAT is decided by the first packet
// alone, so they would go on as they are for as long as their packets keep them alive, rules or not. Their
// next packet begins them anew.
func forgetUntranslated(config Config) error {
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, untranslated(config))
		// EINVAL: the kernel cannot list connections (CONFIG_NF_CT_NETLINK); those go with their timeout. A
		// list that changed while it was read lacks at worst connections that began under the new rules.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("forget connections that are not translated: %w", err)
		}
	}
	return nil
}

// untranslated selects the connections that the rules for config would translate but that are not.
type untranslated Config

// MatchConntrackFlow is part of netlink.CustomConntrackFilter. The reply's addresses are the real ones: its
// source is the destination behind somebody else's DNAT, and its destination the sender's address as the
// world sees it.
func (c untranslated) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	pod, to := addressOf(flow.Forward.SrcIP), addressOf(flow.Reverse.SrcIP)
	return contains(c.PodCIDRs, pod) && addressOf(flow.Reverse.DstIP) == pod &&
		!contains(c.Exempt, to) && !contains(neverMasqueraded, to)
}

func addressOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, prefix := range prefixes {
		if unmap(prefix).Contains(addr) {
			return true
		}
	}
	return false
}
