package route

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// throughTable is the routing table of SyncThrough, the first after those of Sources.
const throughTable = sourceTableFirst + SourcesMax

func isThrough(r rule) bool { return r.priority == throughPriority }

// SyncThrough makes the kernel find a route for every packet that is already at this device, which must be up; index 0 removes
// it again. An XFRM interface asks for one (with itself as the egress device) before it looks for the policy. No packet
// comes to the device by these routes.
func SyncThrough(index int, device string) error {
	want := map[rule]bool{}
	if index != 0 {
		families := map[int]netip.Prefix{unix.AF_INET: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
		if sysctl.HasIPv6() {
			families[unix.AF_INET6] = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		for family, all := range families {
			want[rule{family: family, priority: throughPriority, out: device, table: throughTable}] = true
			if err := addThrough(index, family, all); err != nil {
				return fmt.Errorf("add route %s of %s: %w", all, device, err)
			}
		}
	}
	_, err := syncRules(want, isThrough, false)
	return err
}

// addThrough adds the route where it is missing: the kernel would notify of one that is written again, and the next Sync follow.
func addThrough(index, family int, all netip.Prefix) error {
	present, err := rtnl.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: throughTable}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(present, func(r netlink.Route) bool { return r.LinkIndex == index }) {
		return nil
	}
	return netlink.RouteReplace(Route{Prefix: all, Device: index, Table: throughTable}.kernel())
}
