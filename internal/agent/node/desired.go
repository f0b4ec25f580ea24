// Package node computes the desired state of a node's network: a pure function of the state of the cluster and the
// kernel. Package agent applies the result.
package node

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/macvlan"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/service"
)

// Facts is everything that the desired state depends on.
type Facts struct {
	Config Config
	// LB is the configuration of Services.
	LB       lb.Config
	Snapshot *cluster.Snapshot
	// Recovered is how many of the snapshot's nodes are from the datapath and not from the cluster: see Recover.
	// Unknown says that this node is one of them.
	Recovered int
	Unknown   bool
	// Uplink leads to the other nodes; nil if no device was found. Uplinks are the other uplinks, NoUplinks says why
	// devices are not among all these.
	Uplink    *netdev.Uplink
	Uplinks   []netdev.Uplink
	NoUplinks []error
	// Local are all addresses of this node.
	Local []netip.Addr
	// Routes are those of the kernel, read once.
	Routes route.Table
	// Neighbours are the kernel's neighbour entries on the uplink.
	Neighbours map[netip.Addr]net.HardwareAddr
	// Held are the InternalIP addresses of this node that a device has, in order.
	Held       []netip.Addr
	Tunnel     Tunnel
	Encryption Encryption
	Endpoints  []agentapi.Endpoint
	// IPPools are those of the cluster. VLANs are the VLAN devices of those that this node may have pods of; they are among Uplinks, too.
	IPPools []*cluster.IPPool
	VLANs   VLANs
	// Answers are the devices on which this node answers for the addresses of pods whose IPPool was deleted.
	Answers map[netip.Addr]int
	// Claims name the Nodes with addresses of this node: see OwnFirst.
	Claims []string
	// APIServer are the addresses at which this agent reaches the API server.
	APIServer []netip.AddrPort
	// NoIPv6 says that the kernel has no IPv6.
	NoIPv6 bool

	// wrongKeys are nodes to which nothing can be encrypted, with the reason; Desire sets it.
	wrongKeys map[string]string
}

// Desired is the desired state of the kernel.
type Desired struct {
	// MTU of pods in bytes; 0 without an uplink.
	MTU       int
	PodCIDRs  []netip.Prefix
	Endpoints map[netip.Addr]fwd.Endpoint
	Macvlans  map[macvlan.Key]macvlan.Pod
	Routes    map[netip.Prefix]fwd.Route
	// KernelRoutes are those of the kernel stack: to local pods, to pods of other nodes, and unreachable ones for
	// addresses of the node's ranges without a pod.
	KernelRoutes []route.Route
	// Tunnel and Encryption are those of the facts. TunnelRules requests the routing rules for packets from pods to tunnelled nodes.
	// TunnelSources are this node's tunnel endpoints.
	Tunnel        Tunnel
	Encryption    Encryption
	TunnelRules   bool
	TunnelSources []netip.Addr
	// Uplinks are the uplinks by their index.
	Uplinks map[int]fwd.Uplink
	// Services is the configuration of this node for Services.
	Services service.NodeConfig
	// Neighbours are addresses of nodes that the kernel keeps resolved on the uplink.
	Neighbours []netip.Addr
	// Proxies are the addresses that the node answers for, by the index of the uplink.
	Proxies map[int][]netip.Addr
	// Sources route what pods of IPPools send. A Source without pods has none yet.
	Sources []PoolSource
	// Masquerade says that packets from pods to external addresses get the node's address.
	Masquerade bool
	// Nodes are the other nodes, for status.
	Nodes []agentapi.RemoteNode
	// Problems are sentences on what does not work; Pods are the problems of one pod.
	Problems []string
	Pods     []cluster.ObjectProblem
}

// UsualRoutes is how many routes a node usually has: to its address and to its pods.
const UsualRoutes = 2

// Desire computes the desired state.
func Desire(f Facts) Desired {
	d := Desired{
		MTU:       f.Config.MTU,
		Endpoints: map[netip.Addr]fwd.Endpoint{},
		Routes:    make(map[netip.Prefix]fwd.Route, UsualRoutes*len(f.Snapshot.Nodes)),
		Tunnel:    f.Tunnel, Encryption: f.Encryption,

		TunnelSources: f.tunnelSources(),
		Uplinks:       f.externalUplinks(),
		Services:      f.serviceNode(),
	}
	d.Problems = append(d.Problems, f.Claims...)
	for _, err := range f.NoUplinks {
		d.Problem("--uplink=%s: %v", f.Config.Uplink, err)
	}
	d.Problems = append(d.Problems, f.VLANs.Problems()...)
	if f.Uplink == nil {
		d.Problem("there is no uplink: pods only reach this node and each other")
	} else if limit := f.podMTUMax(); d.MTU == 0 {
		d.MTU = limit
	} else if d.MTU > limit {
		d.Problem("--mtu %d is more than the uplink %s carries, %d: pods depend on path MTU discovery", d.MTU, f.Uplink.Name, limit)
	}
	own, known := f.Snapshot.Node(f.Config.NodeName)
	if !known || f.Unknown {
		d.Problem("node %q is not among the %d Node objects", f.Config.NodeName, len(f.Snapshot.Nodes)-f.Recovered)
	} else if len(own.PodCIDRs) == 0 {
		d.Problem("node %q has no spec.podCIDRs", f.Config.NodeName)
	}
	if f.Recovered > 0 {
		d.Problem("Node objects are missing: %d nodes are recovered from the datapath and stay connected", f.Recovered)
	}
	if f.NoIPv6 {
		own.PodCIDRs = d.withoutIPv6(own)
	}
	d.PodCIDRs = own.PodCIDRs
	for _, e := range f.Endpoints {
		d.addEndpoint(e, own, f)
	}
	for _, p := range own.PodCIDRs {
		d.Routes[p] = fwd.Route{Kind: fwd.RouteLocal}
		d.KernelRoutes = append(d.KernelRoutes, route.Route{Prefix: p, Unreachable: true})
	}
	for _, a := range own.Addresses {
		d.Routes[HostPrefix(a)] = fwd.Route{Kind: fwd.RouteCluster}
	}
	f.wrongKeys = f.wrong()
	if err := f.Encryption.Problem; err != nil {
		d.Problem("encryption: %v", err)
	}
	d.KernelRoutes = slices.Grow(d.KernelRoutes, UsualRoutes*len(f.Snapshot.Nodes))
	d.Nodes = make([]agentapi.RemoteNode, 0, len(f.Snapshot.Nodes))
	for _, n := range f.Snapshot.Nodes {
		if n.Name != f.Config.NodeName {
			d.addNode(n, own, f)
		}
	}
	d.addEncryptedRanges(f)
	d.addSources(own, f)
	for _, p := range f.Config.NonMasquerade {
		if _, known := d.Routes[p]; !known {
			d.Routes[p] = fwd.Route{Kind: fwd.RouteCluster}
		}
	}
	d.Masquerade = f.Config.Masquerade && len(own.PodCIDRs) > 0
	return d
}

// withoutIPv6 gives the pod ranges that a kernel without IPv6 supports.
func (d *Desired) withoutIPv6(own cluster.Node) []netip.Prefix {
	var ranges []netip.Prefix
	for _, p := range own.PodCIDRs {
		if p.Addr().Is4() {
			ranges = append(ranges, p)
			continue
		}
		d.Problem("pods of this node get no addresses from %s: this kernel has no IPv6 (is it booted with ipv6.disable=1?)", p)
	}
	return ranges
}

// Problem adds a problem.
func (d *Desired) Problem(format string, args ...any) {
	d.Problems = append(d.Problems, fmt.Sprintf(format, args...))
}

// PodProblem adds a problem of one pod.
func (d *Desired) PodProblem(pod agentapi.PodRef, format string, args ...any) {
	p := cluster.ObjectProblem{
		Kind: cluster.KindPod, Key: cluster.Key{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID, Text: fmt.Sprintf(format, args...),
	}
	d.Problems = append(d.Problems, p.Text)
	d.Pods = append(d.Pods, p)
}

func (d *Desired) addEndpoint(e agentapi.Endpoint, own cluster.Node, f Facts) {
	if e.Macvlan != nil {
		key, entry := MacvlanEntry(e)
		if d.Macvlans == nil {
			d.Macvlans = map[macvlan.Key]macvlan.Pod{}
		}
		d.Macvlans[key] = entry
	}
	for _, a := range e.Addresses {
		d.Endpoints[a] = EndpointEntry(e)
		d.KernelRoutes = append(d.KernelRoutes, EndpointRoute(e, a, own, f.Uplink))
		if e.Pool != "" {
			d.Routes[HostPrefix(a)] = PoolRoute
			if e.Macvlan == nil {
				d.addProxy(e, a, f)
			}
			continue
		}
		if isStray(a, own.PodCIDRs) {
			d.Routes[HostPrefix(a)] = fwd.Route{Kind: fwd.RouteLocal} // instead of that of its former range
			d.PodProblem(e.Pod, "pod %s has address %s, which is not in this node's ranges %v any more: make the pod anew", e.PodName(), a, own.PodCIDRs)
		}
	}
}

// isStray reports whether an address is outside of all ranges; without ranges it is false.
func isStray(a netip.Addr, ranges []netip.Prefix) bool {
	return len(ranges) > 0 && !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// addNode adds the routes to another node and its pods. Each family has its own path.
func (d *Desired) addNode(n cluster.Node, own cluster.Node, f Facts) {
	node := agentapi.RemoteNode{Name: n.Name, Addresses: n.Addresses, PodCIDRs: rangesOf(n)}
	for _, ipv4 := range []bool{true, false} {
		if !has(n, ipv4) {
			continue
		}
		path, mtu := agentapi.NodePathRouted, 0
		if f.encrypted(n) {
			var pending string
			mtu, pending = d.addEncrypted(n, ipv4, own, f)
			path = f.Config.Encryption.path(pending)
			node.Encryption = f.peerOf(n, pending, node.Encryption)
		} else if f.tunnelled(n, ipv4) {
			if m, ok := d.addTunnelled(n, ipv4, own, f); ok {
				path, mtu = agentapi.NodePathVXLAN, m
			} else {
				d.addRouted(n, ipv4)
			}
		} else if nextHop, ok := f.nextHop(n, ipv4); ok {
			d.addDirect(n, nextHop, f)
			path, mtu = agentapi.NodePathDirect, f.pathMTU()
			if mac := f.Neighbours[nextHop]; len(mac) > 0 && node.MAC == "" {
				node.MAC = mac.String()
			}
		} else {
			d.addRouted(n, ipv4)
		}
		if node.Path == "" {
			node.Path, node.MTU = path, mtu
			continue
		}
		if node.Path != path {
			node.Path += ", " + path
		}
		node.MTU = min(node.MTU, mtu)
	}
	d.Nodes = append(d.Nodes, node)
}

// nextHop is a node's first address of a family on the uplink's link.
func (f Facts) nextHop(n cluster.Node, ipv4 bool) (nextHop netip.Addr, ok bool) {
	for _, a := range n.Addresses {
		if a.Is4() == ipv4 && f.Uplink != nil && onLink(a, *f.Uplink) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// addDirect adds the routes over the uplink's link to a node's addresses of the family of nextHop.
func (d *Desired) addDirect(n cluster.Node, nextHop netip.Addr, f Facts) {
	for _, a := range n.Addresses {
		switch {
		case a.Is4() != nextHop.Is4():
		case onLink(a, *f.Uplink):
			d.Routes[HostPrefix(a)] = remoteRoute(a, f)
			d.Neighbours = append(d.Neighbours, a)
		default:
			d.Routes[HostPrefix(a)] = fwd.Route{Kind: fwd.RouteCluster}
		}
	}
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() != nextHop.Is4() {
			continue
		}
		d.Routes[p] = remoteRoute(nextHop, f)
		route := route.Route{Prefix: p, Via: nextHop, Device: f.Uplink.Index}
		if f.Config.MTU != 0 {
			route.MTU = f.pathMTU() // otherwise the route follows its device
		}
		d.KernelRoutes = append(d.KernelRoutes, route)
	}
}

// addRouted leaves a node's addresses of one family to the existing routes of the kernel stack.
func (d *Desired) addRouted(n cluster.Node, ipv4 bool) {
	for _, a := range n.Addresses {
		if a.Is4() == ipv4 {
			d.Routes[HostPrefix(a)] = fwd.Route{Kind: fwd.RouteCluster}
		}
	}
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() == ipv4 {
			d.Routes[p] = fwd.Route{Kind: fwd.RouteCluster}
		}
	}
}

// pathMTU is the largest packet to another node, in bytes. Pods may be configured with a larger MTU: the node then
// answers larger packets with ICMP errors, where the uplink's link would drop them silently.
func (f Facts) pathMTU() int {
	if f.Config.MTU == 0 {
		return f.Uplink.MTU
	}
	return min(f.Config.MTU, f.Uplink.MTU)
}

func remoteRoute(nextHop netip.Addr, f Facts) fwd.Route {
	return fwd.Route{
		Kind:       fwd.RouteRemote,
		Interface:  f.Uplink.Index,
		MTU:        f.pathMTU(),
		NextHop:    nextHop,
		NextHopMAC: macOf(f.Neighbours[nextHop]),
		UplinkMAC:  macOf(f.Uplink.MAC),
	}
}

// EndpointEntry is the datapath's entry of a pod's device.
func EndpointEntry(e agentapi.Endpoint) fwd.Endpoint {
	if e.Namespace > fwd.NamespaceMax {
		e.Namespace = 0
	}
	return fwd.Endpoint{
		Interface: e.HostIfIndex, PodMAC: ParseMAC(e.PodMAC), HostMAC: ParseMAC(e.HostMAC), ThroughStack: e.ThroughStack != "",
		Underlay: e.Pool != "", Namespace: e.Namespace, Parent: parentOf(e),
		LimitedEgress: e.Bandwidth.Egress > 0, LimitedIngress: e.Bandwidth.Ingress > 0,
	}
}

// EndpointRoute is the kernel stack's route to an address of a pod. The node's own traffic to the pod has the node's
// address as its source, so that replies find back.
func EndpointRoute(e agentapi.Endpoint, a netip.Addr, own cluster.Node, uplink *netdev.Uplink) route.Route {
	return route.Route{Prefix: HostPrefix(a), Device: e.HostIfIndex, Source: ownSource(own, a.Is4(), uplink)}
}

// ownSource is the address by which the cluster knows this node, as the source of the node's own traffic; the zero
// Addr if the uplink has none of that family.
func ownSource(own cluster.Node, ipv4 bool, uplink *netdev.Uplink) netip.Addr {
	for _, s := range own.Addresses {
		if s.Is4() == ipv4 && uplink != nil && holds(*uplink, s) {
			return s
		}
	}
	return netip.Addr{}
}

func HostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func onLink(a netip.Addr, u netdev.Uplink) bool {
	return slices.ContainsFunc(u.Addresses, func(p netip.Prefix) bool { return p.Contains(a) })
}

func holds(u netdev.Uplink, a netip.Addr) bool {
	return slices.ContainsFunc(u.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
}

// macOf gives the zero MAC for an address that is not Ethernet.
func macOf(h net.HardwareAddr) (m fwd.MAC) {
	if len(h) == len(m) {
		copy(m[:], h)
	}
	return m
}

// ParseMAC parses an address that Add has validated.
func ParseMAC(s string) fwd.MAC {
	h, err := net.ParseMAC(s)
	if err != nil {
		return fwd.MAC{}
	}
	return macOf(h)
}
