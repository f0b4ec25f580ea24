package harness

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// ThroughStack says of a pod of the rig whether its packets go through the host's stack.
func (r *Harness) ThroughStack(tb testing.TB, pod fixtures.Member, yes bool) {
	tb.Helper()
	all, err := r.D.Endpoints.All()
	if err != nil {
		tb.Fatal(err)
	}
	for _, a := range []netip.Addr{pod.V4, pod.V6} {
		e := all[a]
		e.ThroughStack = yes
		if err := r.D.Endpoints.Set(a, e); err != nil {
			tb.Fatal(err)
		}
	}
}
