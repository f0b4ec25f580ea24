//go:build kubernetes

package smoke

import (
	"testing"
	"time"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// hasNarrowPaths tells whether paths between nodes carry less than the devices of pods, and routers may not fragment: tunnels,
// and IPv6.
func hasNarrowPaths() bool {
	c, is := onTestbed()
	o := c.Options
	return is && o.Topology == plan.TopologyRouted && !o.IPv4()
}

// learnPath has both ends of a path to an echo server learn its MTU, which on a narrow one they do by the loss of their first packet.
func learnPath(from runner, echo string) {
	if !hasNarrowPaths() {
		return
	}
	for range 2 {
		_, _ = from.try("echo", "udp", echo, "-bytes=6000", "-patience=1s") // what is lost is what teaches
	}
}

// pathsAreRemembered: pods know the MTU of a path for as long as their kernel says, and not until it tidies up.
func pathsAreRemembered(t *testing.T) {
	const tidies = 30 * time.Second // net.ipv6.route.gc_interval
	c := useFixtures(t)
	learnPath(c.a.runner, c.remote.echo())
	time.Sleep(2*tidies + 5*time.Second)
	c.a.want(t, "echo", "udp", c.remote.echo(), "-bytes=6000", "-count=3")
}
