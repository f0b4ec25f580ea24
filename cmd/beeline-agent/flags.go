package main

import (
	"github.com/spf13/pflag"

	"github.com/beeline-cni/beeline/internal/agent"
	"github.com/beeline-cni/beeline/internal/install"
)

// addNodeFlags adds the flags for the node: where its cluster, files and sockets are.
func addNodeFlags(f *pflag.FlagSet, c *agent.Config) {
	f.StringVar(&c.NodeName, "node-name", c.NodeName, "metadata.name of this node's Node object")
	f.StringVar(&c.Manifests, "manifests", c.Manifests, "directory of Kubernetes manifests to read and watch instead of an API server")
	f.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "kubeconfig file for the API server; empty: the pod's service account")
	f.StringVar(&c.APIServer, "api-server", c.APIServer, "comma-separated https URLs of the API server, for the pod's service account; empty: the Service kubernetes")
	f.StringVar(&c.Socket, "socket", c.Socket, "unix socket to serve the CNI plugin and the command beeline on")
	f.StringVar(&c.MetricsAddress, "metrics-address", c.MetricsAddress, "address and port to serve /metrics, /healthz and /readyz on; empty: not served")
	f.StringVar(&c.StateDir, "state-dir", c.StateDir, "directory of the endpoint files")
	f.StringVar(&c.BPFFS, "bpffs", c.BPFFS, "directory on a BPF file system to pin maps and links in")
	f.StringVar(&c.CNIConfDir, "cni-conf-dir", c.CNIConfDir, "directory to install "+install.Conflist+" in when the node is ready; empty: not installed")
	f.StringVar(&c.CNIBinDir, "cni-bin-dir", c.CNIBinDir, "directory to install the CNI plugins "+install.Plugin+" and "+install.PortMap+" in; empty: not installed")
	f.StringVar(&c.CommandDir, "command-dir", c.CommandDir, "directory to install the commands beeline and beeline-agent in; empty: not installed")
	f.StringVar(&c.CNIPluginFrom, "cni-plugin-from", c.CNIPluginFrom, "directory to install programs from; empty: the directory of this program")
}

// addNetworkFlags adds the flags for addresses, routes and masquerading.
func addNetworkFlags(f *pflag.FlagSet, c *agent.Config) {
	f.StringVar(&c.Uplink, "uplink", c.Uplink, "comma-separated devices to the external network, the one to other nodes first; auto: by the node's address and the default routes")
	f.IntVar(&c.MTU, "mtu", c.MTU, "MTU of pods in bytes; 0: the uplink's")
	f.StringVar((*string)(&c.Device), "device", string(c.Device), "kind of the devices of new pods: auto (netkit where the kernel supports it), veth, netkit, macvlan (for pods of an IPPool that names no kind; auto for others)")
	f.StringVar(&c.VethRuntimeClasses, "veth-runtime-classes", c.VethRuntimeClasses, "comma-separated runtime classes whose pods get veth devices, which virtual machines need; * stands for any characters; empty: none")
	f.StringVar((*string)(&c.Routing), "routing", string(c.Routing), "what forwards packets of pods: ebpf, kernel")
	f.StringVar((*string)(&c.Tunnel), "tunnel", string(c.Tunnel), "which nodes to reach through VXLAN: none, vxlan (all), auto (nodes of other subnets)")
	f.IntVar(&c.TunnelPort, "tunnel-port", c.TunnelPort, "UDP port of VXLAN, the same on all nodes")
	f.StringVar((*string)(&c.Encryption), "encryption", string(c.Encryption), "how to encrypt packets between pods of different nodes: none, wireguard, ipsec (in place of VXLAN)")
	f.BoolVar(&c.EncryptionStrict, "encryption-strict", c.EncryptionStrict, "drop packets of and to nodes that cannot be encrypted; false: plaintext to and from nodes without a key, while encryption is turned on node by node")
	f.TextVar(&c.EncryptedCIDRs, "encrypted-cidrs", c.EncryptedCIDRs, "comma-separated pod ranges of the whole cluster: packets there are dropped where no known node has the address; empty: they are external")
	f.IntVar(&c.WireGuardPort, "wireguard-port", c.WireGuardPort, "UDP port of WireGuard, the same on all nodes")
	f.StringVar(&c.WireGuardKey, "wireguard-key", c.WireGuardKey, "file of this node's private key of WireGuard, which survives reboots; made if it is missing")
	f.StringVar(&c.IPsecKeys, "ipsec-keys", c.IPsecKeys, "file of the cluster's keys of IPsec, read again once a minute; each line is a generation, a cipher (aes-128-gcm, aes-256-gcm) and a secret of 32 bytes in base64")
	f.StringVar(&c.IPsecState, "ipsec-state", c.IPsecState, "file of what this node has used of the keys of IPsec; it has to outlive agents, and may go with a reboot")
	f.IntVar(&c.RoutesMax, "routes-max", c.RoutesMax, "capacity for node prefixes: two per node and IP family")
	f.TextVar(&c.NodeCIDRs, "node-cidrs", c.NodeCIDRs, "comma-separated CIDRs that may hold node addresses; others in a Node's status are rejected; empty: private addresses, and public ones if this node's first address is public")
	f.BoolVar(&c.Masquerade, "masquerade", c.Masquerade, "masquerade traffic from pods to the external network with a node address")
	f.TextVar(&c.NonMasquerade, "non-masquerade-cidrs", c.NonMasquerade, "comma-separated CIDRs exempt from masquerading")
}

// addServiceFlags adds the flags for Services.
func addServiceFlags(f *pflag.FlagSet, c *agent.ServiceConfig) {
	f.StringVar((*string)(&c.Services), "services", string(c.Services), "what implements Services: ebpf, kube-proxy, none; auto: ebpf")
	f.StringVar(&c.Cgroup, "cgroup", c.Cgroup, "cgroup v2 directory that holds all processes of the node; auto: the mount point")
	f.TextVar(&c.NodePortAddresses, "nodeport-addresses", c.NodePortAddresses, "comma-separated CIDRs of the node addresses that serve NodePorts; empty: the addresses of the Node object")
	f.TextVar(&c.ExternalIPs, "external-ips", c.ExternalIPs, "comma-separated CIDRs that spec.externalIPs of Services may use; none: externalIPs are ignored")
	f.StringVar((*string)(&c.NodePortMode), "nodeport-mode", string(c.NodePortMode), "return path of external connections to backends on other nodes: snat (through this node), dsr (direct, if both nodes are on one link)")
	f.StringVar((*string)(&c.NodePortAcceleration), "nodeport-acceleration", string(c.NodePortAcceleration), "hook that forwards external packets: xdp, tc; auto: xdp where the driver supports it and it is faster")
	f.TextVar(&c.NATPorts, "nat-ports", c.NATPorts, "port range of the node for masqueraded and NodePort connections")
	f.TextVar(&c.MaglevTableSize, "maglev-table-size", c.MaglevTableSize, "size of a Maglev table, a prime, the same on all nodes; auto: at least 100 entries per backend")
	f.IntVar(&c.Sizes.Services, "services-max", c.Sizes.Services, "capacity for frontends, which are addresses and ports of Services")
	f.IntVar(&c.Sizes.Backends, "backends-max", c.Sizes.Backends, "capacity for backends, summed over all frontends")
	f.IntVar(&c.Sizes.NAT, "nat-max", c.Sizes.NAT, "capacity for NAT entries, two per connection")
	f.IntVar(&c.Sizes.NATPending, "nat-pending-max", c.Sizes.NATPending, "capacity for NAT entries of connections without a reply yet")
	f.IntVar(&c.Sizes.Affinities, "affinities-max", c.Sizes.Affinities, "capacity for clients with session affinity")
	f.StringVar(&c.HealthzAddress, "healthz-address", c.HealthzAddress, "address and port to serve /healthz and /livez on for external load balancers, as kube-proxy does; empty: not served")
}

// addPolicyFlags adds the flags for NetworkPolicies.
func addPolicyFlags(f *pflag.FlagSet, c *agent.PolicyConfig) {
	f.StringVar((*string)(&c.Policy), "policy", string(c.Policy), "what enforces NetworkPolicies: ebpf, none; auto: ebpf")
	f.IntVar(&c.PolicySizes.Identities, "identities-max", c.PolicySizes.Identities, "capacity for identities of pods, and the same for ipBlocks")
	f.IntVar(&c.PolicySizes.Policies, "policies-max", c.PolicySizes.Policies, "capacity for policy entries of this node, one per rule set and kind of peer")
	f.IntVar(&c.PolicySizes.Conntrack, "conntrack-max", c.PolicySizes.Conntrack, "capacity for conntrack entries, of pods that policies select, or of all pods with --flows=all; an evicted connection is evaluated again")
}

// addFlowFlags adds the flags for flows.
func addFlowFlags(f *pflag.FlagSet, c *agent.FlowConfig) {
	f.StringVar((*string)(&c.Flows), "flows", string(c.Flows), "flows to report: policy (connections of pods that NetworkPolicies select, and drops), all (connections of all pods, and drops), drops, off")
	f.IntVar(&c.FlowsRate, "flows-rate", c.FlowsRate, "report at most this many drops a second and CPU; the rest are counted")
	f.IntVar(&c.FlowsSample, "flows-sample", c.FlowsSample, "report one connection in N")
	f.IntVar(&c.FlowsBuffer, "flows-buffer", c.FlowsBuffer, "number of flow events to keep for later queries")
}

// addSocketFlags adds the flags for same-node sockets.
func addSocketFlags(f *pflag.FlagSet, c *agent.SocketConfig) {
	f.StringVar((*string)(&c.SameNode), "same-node", string(c.SameNode), "experimental: sockets passes TCP data between pods of one node from socket to socket, if both have the annotation networking.beeline.dev/same-node: sockets; off")
	f.IntVar(&c.SameNodeMax, "same-node-max", c.SameNodeMax, "capacity for sockets of --same-node=sockets, divided among namespaces and their pods")
}
