package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/device"
)

// namedForeign is how many routes and devices of others a problem names; the rest it counts.
const namedForeign = 4

// applyKernelRoutes sets the routes of the host's stack. None that cannot be set keeps pods from being added: those of pods are set by ADD
// too, which then fails for that pod alone.
func (a *Agent) applyKernelRoutes(routes []device.Route, present device.Routes) {
	_, err := present.Sync(routes)
	others := 0
	for _, e := range parts(err) {
		if errors.Is(e, device.ErrForeignRoute) {
			continue // told of below, with whose it is
		}
		if others++; others <= namedForeign {
			a.current.problem("kernel routes: %v; what the node itself sends there, and pods that go through its stack, may be lost; it is tried again at the next change", e)
		}
	}
	if others > namedForeign {
		a.current.problem("kernel routes: %d more could not be set, see the log", others-namedForeign)
		a.log.Error("kernel routes", "error", err)
	}
	if text := foreignProblem(present.Foreign(rangesOf(routes)), a.uplinks); text != "" {
		a.current.problem("%s", text)
	}
}

// parts are the errors that were joined.
func parts(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the outermost one only: what it wraps is told as a whole
		return joined.Unwrap()
	}
	return []error{err}
}

// rangesOf are the prefixes of table main that routes are about, without single addresses that lie in them.
func rangesOf(routes []device.Route) (all []netip.Prefix) {
	for _, r := range routes {
		if r.Table == 0 && !r.Prefix.IsSingleIP() {
			all = append(all, r.Prefix)
		}
	}
	return all
}

// foreignProblem says what routes of others in the ranges of pods do, and how to be rid of them; empty without any. A device that the node
// needs itself is not to be deleted for it.
func foreignProblem(routes []device.ForeignRoute, uplinks []device.Uplink) string {
	if len(routes) == 0 {
		return ""
	}
	var names, remove []string
	for _, r := range routes {
		names = append(names, r.String())
		isUplink := slices.ContainsFunc(uplinks, func(u device.Uplink) bool { return u.Index == r.Index })
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
	if len(all) <= namedForeign {
		return strings.Join(all, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:namedForeign], separator), len(all)-namedForeign)
}
