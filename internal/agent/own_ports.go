package agent

import (
	"net"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
)

// flagOfPort names the flag that a port of the node belongs to; empty for one that pods may have. A pod that had it would answer the kubelet's
// probes and load balancers in the agent's place, or get what other nodes send through tunnels.
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

// listenPort gives the port of an address to listen at; 0 for none.
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
