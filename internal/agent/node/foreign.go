package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// NamedForeign is how many foreign routes and devices a problem names; it counts the rest.
const NamedForeign = 4

// RangesOf are the prefixes of the routes in table main, without single addresses within them.
func RangesOf(routes []route.Route) (all []netip.Prefix) {
	for _, r := range routes {
		if r.Table == 0 && !r.Prefix.IsSingleIP() {
			all = append(all, r.Prefix)
		}
	}
	return all
}

// ForeignProblem says what foreign routes in pod ranges do, and how to remove them; empty if there are none. It never
// proposes to delete a device that the node needs.
func ForeignProblem(routes []route.Foreign, uplinks []netdev.Uplink) string {
	if len(routes) == 0 {
		return ""
	}
	var names, remove []string
	for _, r := range routes {
		names = append(names, r.String())
		isUplink := slices.ContainsFunc(uplinks, func(u netdev.Uplink) bool { return u.Index == r.Index })
		how := "ip link delete " + r.Device
		if r.Device == "" || r.Physical || isUplink {
			how = "ip route delete " + r.String()
		}
		if !slices.Contains(remove, how) {
			remove = append(remove, how)
		}
	}
	return fmt.Sprintf("routes of another network are in the ranges of pods (%s): packets there from the node itself and through the kernel stack follow these routes. "+
		"Recreate the pods of that network; then remove its leftovers (%s), or restart the node", some(names, ", "), some(remove, "; "))
}

// some names the first few.
func some(all []string, separator string) string {
	if len(all) <= NamedForeign {
		return strings.Join(all, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:NamedForeign], separator), len(all)-NamedForeign)
}
