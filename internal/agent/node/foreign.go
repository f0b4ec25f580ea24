package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// NamedForeign is how many routes and devices of others a problem names; the rest it counts.
const NamedForeign = 4

// RangesOf are the prefixes of table main that routes are about, without single addresses that lie in them.
func RangesOf(routes []route.Route) (all []netip.Prefix) {
	for _, r := range routes {
		if r.Table == 0 && !r.Prefix.IsSingleIP() {
			all = append(all, r.Prefix)
		}
	}
	return all
}

// ForeignProblem says what routes of others in the ranges of pods do, and how to be rid of them; empty without any. A device that the node
// needs itself is not to be deleted for it.
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
	return fmt.Sprintf("routes of another network are in the ranges of pods (%s): what the node itself sends there, and pods that go through its stack, goes that way. "+
		"Make anew the pods that this network still has here; then remove what it has left (%s), or restart the node", some(names, ", "), some(remove, "; "))
}

// some names the first few.
func some(all []string, separator string) string {
	if len(all) <= NamedForeign {
		return strings.Join(all, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:NamedForeign], separator), len(all)-NamedForeign)
}
