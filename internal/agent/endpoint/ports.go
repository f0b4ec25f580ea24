package endpoint

import (
	"net"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
)

// flagOfPort names the flag that a port of the node belongs to; empty for a port that pods may have. A pod with such
// a port would answer probes and load balancers in the agent's place, or receive packets of tunnels.
func (o Options) flagOfPort(protocol string, port int) string {
	switch {
	case strings.EqualFold(protocol, "udp"):
		if o.Config.Tunnel != node.TunnelNone && port == o.Config.TunnelPort {
			return "--tunnel-port"
		}
	case strings.EqualFold(protocol, "tcp"):
		if port == listenPort(o.MetricsAddress) {
			return "--metrics-address"
		}
		if o.LB.Services != lb.ModeNone && o.LB.Services != lb.ModeKubeProxy && port == listenPort(o.LB.HealthzAddress) {
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

// HostPorts are the ports of the node that belong to pods.
func (e *Endpoints) HostPorts() []service.HostPort { return lb.HostPorts(e.All()) }

// HostPortPods are the UIDs of the pods with such ports.
func (e *Endpoints) HostPortPods() map[cluster.Key]string {
	pods := map[cluster.Key]string{}
	for _, p := range e.all {
		if len(p.PortMappings) > 0 {
			pods[lb.PodKey(p)] = p.Pod.UID
		}
	}
	return pods
}

// checkPorts rejects a pod that requests a port of this node which another pod or the agent itself has.
func (e *Endpoints) checkPorts(added agentapi.Endpoint) error {
	for _, wants := range added.PortMappings {
		if flag := e.flagOfPort(wants.Protocol, int(wants.HostPort)); flag != "" {
			return agentapi.Errorf(agentapi.CodePortTaken, "port %d/%s of node %s belongs to the network of the node itself (%s)", wants.HostPort, wants.Protocol, e.Config.NodeName, flag)
		}
	}
	if e.Services == nil {
		return nil
	}
	return lb.CheckPorts(e.Config.NodeName, e.All(), added)
}

// openPorts writes the ports of a new pod to the datapath.
func (e *Endpoints) openPorts(p agentapi.Endpoint) error {
	e.Lock.Lock()
	e.Services.UpdateHostPorts(e.HostPorts()) // under the lock, so that no older list follows
	e.Lock.Unlock()
	return e.Services.OpenPorts(p)
}
