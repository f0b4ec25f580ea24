package agent

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/service"
)

// facts is all that the desired state depends on.
type facts struct {
	config   Config
	snapshot *cluster.Snapshot
	// found is how many of the snapshot's nodes the cluster did not tell of: see withFound. unknown says that
	// this node is not among those that it did.
	found   int
	unknown bool
	// uplink is nil when no device was found.
	uplink *device.Uplink
	// uplinks are the other devices to the world; noUplinks those that were asked for and are not there.
	uplinks   []device.Uplink
	noUplinks []string
	// local are all addresses of this node.
	local []netip.Addr
	// routes are those of the kernel, which were read once for all who ask.
	routes device.Routes
	// neighbours are the link-layer addresses that the kernel knows on the uplink.
	neighbours map[netip.Addr]net.HardwareAddr
	// held are this node's InternalIP addresses that it really has, in their order.
	held      []netip.Addr
	tunnel    tunnel
	endpoints []agentapi.Endpoint
	// claims say which Nodes claim addresses of this node: see ownFirst.
	claims []string
	// apiServer is where this agent reaches the API server.
	apiServer []netip.AddrPort
	// noIPv6 says that the kernel has no IPv6 at all.
	noIPv6 bool
}

// desired is what the kernel should hold. It is a value: computing it touches nothing.
type desired struct {
	// mtu of pods in bytes; 0 when there is no uplink to take it from.
	mtu       int
	podCIDRs  []netip.Prefix
	endpoints map[netip.Addr]datapath.Endpoint
	routes    map[netip.Prefix]datapath.Route
	// kernelRoutes are those of the host's stack: to its pods, to the other nodes' pods, and nowhere for
	// addresses of its own ranges that no pod has.
	kernelRoutes []device.Route
	// tunnel is that of the facts. tunnelRules asks for the rules of what pods send to tunnelled nodes, and
	// tunnelSources are this node's ends of tunnels.
	tunnel        tunnel
	tunnelRules   bool
	tunnelSources []netip.Addr
	// uplinks are the devices to the world by their index.
	uplinks map[int]datapath.Uplink
	// services is what the translation of Services has to know of this node.
	services service.NodeConfig
	// neighbours are the nodes' addresses that the kernel is to keep resolved on the uplink.
	neighbours []netip.Addr
	// masquerade says that what pods send to the world gets the node's address.
	masquerade bool
	// nodes are the other nodes, for status.
	nodes []agentapi.RemoteNode
	// problems say in a sentence each what cannot be had; pods are those of them that are of one pod.
	problems []string
	pods     []podProblem
}

// usualRoutes is how many routes a node mostly has: to its address and to its pods.
const usualRoutes = 2

// desire computes the desired state.
func desire(f facts) desired {
	d := desired{
		mtu:       f.config.MTU,
		endpoints: map[netip.Addr]datapath.Endpoint{},
		routes:    make(map[netip.Prefix]datapath.Route, usualRoutes*len(f.snapshot.Nodes)),
		tunnel:    f.tunnel,

		tunnelSources: f.tunnelSources(),
		uplinks:       f.worldUplinks(),
		services:      f.serviceNode(),
	}
	d.problems = append(d.problems, f.claims...)
	for _, name := range f.noUplinks {
		d.problem("--uplink %s: no such device, or it is down", name)
	}
	if f.uplink == nil {
		d.problem("there is no uplink%s: pods reach this node and each other only", uplinkAsked(f.config.Uplink))
	} else if room := f.podRoom(); d.mtu == 0 {
		d.mtu = room
	} else if d.mtu > room {
		d.problem("--mtu %d is more than the uplink %s carries, %d: pods find out by path MTU discovery", d.mtu, f.uplink.Name, room)
	}
	own, known := f.snapshot.Node(f.config.NodeName)
	if !known || f.unknown {
		d.problem("node %q is not among the %d Node objects", f.config.NodeName, len(f.snapshot.Nodes)-f.found)
	} else if len(own.PodCIDRs) == 0 {
		d.problem("node %q has no spec.podCIDRs", f.config.NodeName)
	}
	if f.found > 0 {
		d.problem("Node objects are missing: what the datapath knows of %d nodes stays in force", f.found)
	}
	if f.noIPv6 {
		own.PodCIDRs = d.withoutIPv6(own)
	}
	d.podCIDRs = own.PodCIDRs
	for _, e := range f.endpoints {
		d.addEndpoint(e, own, f.uplink)
	}
	for _, p := range own.PodCIDRs {
		d.routes[p] = datapath.Route{Kind: datapath.RouteLocal}
		d.kernelRoutes = append(d.kernelRoutes, device.Route{Prefix: p, Unreachable: true})
	}
	for _, a := range own.Addresses {
		d.routes[hostPrefix(a)] = datapath.Route{Kind: datapath.RouteCluster}
	}
	d.kernelRoutes = slices.Grow(d.kernelRoutes, usualRoutes*len(f.snapshot.Nodes))
	d.nodes = make([]agentapi.RemoteNode, 0, len(f.snapshot.Nodes))
	for _, n := range f.snapshot.Nodes {
		if n.Name != f.config.NodeName {
			d.addNode(n, own, f)
		}
	}
	for _, p := range f.config.NonMasquerade {
		if _, known := d.routes[p]; !known {
			d.routes[p] = datapath.Route{Kind: datapath.RouteCluster}
		}
	}
	d.masquerade = f.config.Masquerade && len(own.PodCIDRs) > 0
	return d
}

// withoutIPv6 gives the pod ranges that a kernel without IPv6 can serve.
func (d *desired) withoutIPv6(own cluster.Node) []netip.Prefix {
	var ranges []netip.Prefix
	for _, p := range own.PodCIDRs {
		if p.Addr().Is4() {
			ranges = append(ranges, p)
			continue
		}
		d.problem("pods of this node get no addresses from %s: this kernel has no IPv6 (is it booted with ipv6.disable=1?)", p)
	}
	return ranges
}

// uplinkAsked names the device that was asked for, where one was.
func uplinkAsked(name string) string {
	if name == "" || name == "auto" {
		return ""
	}
	return fmt.Sprintf(" (--uplink %s: no such device, or it is down)", name)
}

func (d *desired) problem(format string, args ...any) {
	d.problems = append(d.problems, fmt.Sprintf(format, args...))
}

func (d *desired) podProblem(pod agentapi.PodRef, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	d.problems = append(d.problems, text)
	d.pods = append(d.pods, podProblem{pod, text})
}

func (d *desired) addEndpoint(e agentapi.Endpoint, own cluster.Node, uplink *device.Uplink) {
	for _, a := range e.Addresses {
		d.endpoints[a] = endpointEntry(e)
		d.kernelRoutes = append(d.kernelRoutes, endpointRoute(e, a, own, uplink))
		if isStray(a, own.PodCIDRs) {
			d.routes[hostPrefix(a)] = datapath.Route{Kind: datapath.RouteLocal} // instead of its former range's
			d.podProblem(e.Pod, "pod %s has address %s, which is not in this node's ranges %v any more: make the pod anew", e.PodName(), a, own.PodCIDRs)
		}
	}
}

// isStray tells an address that is in none of the ranges; without ranges no address is one.
func isStray(a netip.Addr, ranges []netip.Prefix) bool {
	return len(ranges) > 0 && !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// addNode adds the routes to another node and its pods. Each family has a way of its own.
func (d *desired) addNode(n cluster.Node, own cluster.Node, f facts) {
	node := agentapi.RemoteNode{Name: n.Name, Addresses: n.Addresses, PodCIDRs: n.PodCIDRs}
	for _, ipv4 := range []bool{true, false} {
		if !has(n, ipv4) {
			continue
		}
		way, mtu := agentapi.WayRouted, 0
		if f.tunnelled(n, ipv4) {
			if m, ok := d.addTunnelled(n, ipv4, own, f); ok {
				way, mtu = agentapi.WayVXLAN, m
			} else {
				d.addRouted(n, ipv4)
			}
		} else if hop, ok := f.hop(n, ipv4); ok {
			d.addDirect(n, hop, f)
			way, mtu = agentapi.WayDirect, f.pathMTU()
			if mac := f.neighbours[hop]; len(mac) > 0 && node.MAC == "" {
				node.MAC = mac.String()
			}
		} else {
			d.addRouted(n, ipv4)
		}
		if node.Way == "" {
			node.Way, node.MTU = way, mtu
			continue
		}
		if node.Way != way {
			node.Way += ", " + way
		}
		node.MTU = min(node.MTU, mtu)
	}
	d.nodes = append(d.nodes, node)
}

// hop is a node's first address of a family on the uplink's link.
func (f facts) hop(n cluster.Node, ipv4 bool) (hop netip.Addr, ok bool) {
	for _, a := range n.Addresses {
		if a.Is4() == ipv4 && f.uplink != nil && onLink(a, *f.uplink) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// addDirect adds the routes over the uplink's link to what a node has of the family of hop.
func (d *desired) addDirect(n cluster.Node, hop netip.Addr, f facts) {
	for _, a := range n.Addresses {
		switch {
		case a.Is4() != hop.Is4():
		case onLink(a, *f.uplink):
			d.routes[hostPrefix(a)] = remoteRoute(a, f)
			d.neighbours = append(d.neighbours, a)
		default:
			d.routes[hostPrefix(a)] = datapath.Route{Kind: datapath.RouteCluster}
		}
	}
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() != hop.Is4() {
			continue
		}
		d.routes[p] = remoteRoute(hop, f)
		route := device.Route{Prefix: p, Via: hop, Device: f.uplink.Index}
		if f.config.MTU != 0 {
			route.MTU = f.pathMTU() // or else the route follows its device
		}
		d.kernelRoutes = append(d.kernelRoutes, route)
	}
}

// addRouted leaves what a node has of one family to the routes that the host's stack has anyway.
func (d *desired) addRouted(n cluster.Node, ipv4 bool) {
	for _, a := range n.Addresses {
		if a.Is4() == ipv4 {
			d.routes[hostPrefix(a)] = datapath.Route{Kind: datapath.RouteCluster}
		}
	}
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() == ipv4 {
			d.routes[p] = datapath.Route{Kind: datapath.RouteCluster}
		}
	}
}

// pathMTU is the largest packet to another node, in bytes. Pods may have a larger MTU, if so asked: larger
// packets are then answered by the node, where the uplink's link would lose them without a word.
func (f facts) pathMTU() int {
	if f.config.MTU == 0 {
		return f.uplink.MTU
	}
	return min(f.config.MTU, f.uplink.MTU)
}

func remoteRoute(hop netip.Addr, f facts) datapath.Route {
	return datapath.Route{
		Kind:       datapath.RouteRemote,
		Interface:  f.uplink.Index,
		MTU:        f.pathMTU(),
		NextHop:    hop,
		NextHopMAC: macOf(f.neighbours[hop]),
		UplinkMAC:  macOf(f.uplink.MAC),
	}
}

// endpointEntry is what the datapath needs to know of a pod's device.
func endpointEntry(e agentapi.Endpoint) datapath.Endpoint {
	if e.Namespace > datapath.NamespaceMax {
		e.Namespace = 0
	}
	return datapath.Endpoint{
		Interface: e.HostIfIndex, PodMAC: parseMAC(e.PodMAC), HostMAC: parseMAC(e.HostMAC), ThroughStack: e.ThroughStack != "",
		Namespace: e.Namespace,
	}
}

// endpointRoute is the host stack's route to one address of a pod. The node's own traffic to the pod takes
// the node's address as its source, so that the pod's replies find back.
func endpointRoute(e agentapi.Endpoint, a netip.Addr, own cluster.Node, uplink *device.Uplink) device.Route {
	return device.Route{Prefix: hostPrefix(a), Device: e.HostIfIndex, Source: ownSource(own, a.Is4(), uplink)}
}

// ownSource is the address by which the cluster knows this node, for what the node itself sends; the zero Addr
// where the uplink has none of that family.
func ownSource(own cluster.Node, ipv4 bool, uplink *device.Uplink) netip.Addr {
	for _, s := range own.Addresses {
		if s.Is4() == ipv4 && uplink != nil && holds(*uplink, s) {
			return s
		}
	}
	return netip.Addr{}
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func onLink(a netip.Addr, u device.Uplink) bool {
	return slices.ContainsFunc(u.Addresses, func(p netip.Prefix) bool { return p.Contains(a) })
}

func holds(u device.Uplink, a netip.Addr) bool {
	return slices.ContainsFunc(u.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
}

// macOf gives the zero MAC for what is not an Ethernet address.
func macOf(h net.HardwareAddr) (m datapath.MAC) {
	if len(h) == len(m) {
		copy(m[:], h)
	}
	return m
}

// parseMAC reads an address that Add has checked.
func parseMAC(s string) datapath.MAC {
	h, err := net.ParseMAC(s)
	if err != nil {
		return datapath.MAC{}
	}
	return macOf(h)
}
