package agent

import (
	"net"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
)

// flagOfPort names the flag that a port of the node belongs to; empty for a port that pods may have. A pod with such
// a port would answer probes and load balancers in the agent's place, or receive packets of tunnels.
func (c Config) flagOfPort(protocol string, port int) string {
	switch {
	case strings.EqualFold(protocol, "udp"):
		if c.Tunnel != node.TunnelNone && port == c.TunnelPort {
			return "--tunnel-port"
		}
	case strings.EqualFold(protocol, "tcp"):
		if port == listenPort(c.MetricsAddress) {
			return "--metrics-address"
		}
		if c.Services != lb.ModeNone && c.Services != lb.ModeKubeProxy && port == listenPort(c.HealthzAddress) {
			return "--healthz-address"
		}
	}
	return ""
}

// listenPort gives the port of a listen address; 0 for none.
func listenPort(address string) int {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}
