package main

import (
	"github.com/spf13/pflag"

	"github.com/beeline-cni/beeline/internal/agent"
)

// addServiceFlags adds the agent's flags about Services.
func addServiceFlags(f *pflag.FlagSet, c *agent.ServiceConfig) {
	f.StringVar((*string)(&c.Services), "services", string(c.Services), "who translates the addresses of Services: ebpf, kube-proxy, none; auto: ebpf")
	f.StringVar(&c.Cgroup, "cgroup", c.Cgroup, "directory of cgroup2 below which the node's processes are; auto: where it is mounted")
	f.TextVar(&c.NodePortAddresses, "nodeport-addresses", c.NodePortAddresses, "networks on whose addresses of this node NodePorts answer, with commas; empty: the Node's own addresses")
	f.TextVar(&c.ExternalIPs, "external-ips", c.ExternalIPs, "comma-separated CIDRs of which Services may have addresses in spec.externalIPs; none: Services have no externalIPs")
	f.StringVar((*string)(&c.NodePortMode), "nodeport-mode", string(c.NodePortMode), "how backends on other nodes answer the world: snat (through this node), dsr (directly, where both are on one link)")
	f.StringVar((*string)(&c.NodePortAcceleration), "nodeport-acceleration", string(c.NodePortAcceleration), "where what comes from the world is forwarded: xdp, tc; auto: xdp where the driver has it and gains by it")
	f.TextVar(&c.NATPorts, "nat-ports", c.NATPorts, "ports of the node that translated connections take")
	f.TextVar(&c.MaglevTableSize, "maglev-table-size", c.MaglevTableSize, "entries of a table of consistent hashing, a prime, the same on all nodes; auto: at least 100 for each backend")
	f.IntVar(&c.Sizes.Services, "services-max", c.Sizes.Services, "how many frontends there can be: addresses and ports of Services")
	f.IntVar(&c.Sizes.Backends, "backends-max", c.Sizes.Backends, "how many backends there can be in all sets together")
	f.IntVar(&c.Sizes.Connections, "connections-max", c.Sizes.Connections, "how many connections can be translated packet by packet, counting both directions")
	f.IntVar(&c.Sizes.Openings, "openings-max", c.Sizes.Openings, "the same of connections that nobody has answered yet")
	f.IntVar(&c.Sizes.Affinities, "affinities-max", c.Sizes.Affinities, "how many clients are remembered for session affinity")
	f.StringVar(&c.HealthzAddress, "healthz-address", c.HealthzAddress, "where load balancers of the world ask for /healthz and /livez, as they ask kube-proxy; empty: nowhere")
}
