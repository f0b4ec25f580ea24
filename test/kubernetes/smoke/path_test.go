//go:build kubernetes

package smoke

import (
	"testing"
	"time"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// hasNarrowPaths reports whether paths between nodes have a lower MTU than pod devices, without fragmentation by
// routers: tunnels, and IPv6.
func hasNarrowPaths() bool {
	c, is := onTestbed()
	o := c.Options
	return is && o.Topology == plan.TopologyRouted && !o.IPv4()
}

// learnPath makes both ends of a path to an echo server learn its MTU, by the loss of their first packet if it is
// lower.
func learnPath(from runner, echo string) {
	if !hasNarrowPaths() {
		return
	}
	for range 2 {
		_, _ = from.try("echo", "udp", echo, "-bytes=6000", "-patience=1s") // the lost packet triggers the error
	}
}

// pathMTUsAreCached: pods cache the MTU of a path for as long as their kernel says, beyond its garbage collection.
func pathMTUsAreCached(t *testing.T) {
	const tidies = 30 * time.Second // net.ipv6.route.gc_interval
	c := useFixtures(t)
	learnPath(c.a.runner, c.remote.echo())
	time.Sleep(2*tidies + 5*time.Second)
	c.a.want(t, "echo", "udp", c.remote.echo(), "-bytes=6000", "-count=3")
}
