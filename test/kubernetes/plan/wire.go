package plan

import (
	"fmt"
	"net/netip"
	"slices"
)

// Router is the network namespace between the links of the routed topology. It has no processes.
const Router = "router"

// podTable is the router's table of routes to pods. Only packets from the control plane use it: with such routes for
// nodes, a broken tunnel would not be noticed.
const podTable = 100

// Batch is a list of commands for `ip -batch` in one namespace.
type Batch struct {
	// Netns is the namespace's name.
	Netns string
	// Family is the option "-6" of ip for commands without an address that implies the family.
	Family string
	// Commands have no leading "ip" and no options, because ip takes options in a batch for objects.
	Commands []string
}

func (b *Batch) add(format string, args ...any) {
	b.Commands = append(b.Commands, fmt.Sprintf(format, args...))
}

// switchName is the bridge of a link.
func switchName(link int) string { return fmt.Sprintf("link%d", link) }

// switchNetns is the network namespace of the links' bridges.
const switchNetns = "wire"

// Namespaces returns the names of all network namespaces of the cluster, without prefix, switchNetns first.
func (c Cluster) Namespaces() []string {
	names := []string{switchNetns}
	if c.routed() {
		names = append(names, Router)
	}
	for _, m := range c.Machines() {
		names = append(names, m.Name)
	}
	return names
}

func (c Cluster) routed() bool { return c.Options.Topology == TopologyRouted }

// WireLinks makes the links, without ports.
func (c Cluster) WireLinks() []Batch {
	b := Batch{Netns: switchNetns}
	for link := range c.links() {
		b.add("link add %s type bridge", switchName(link))
		b.add("link set %s up", switchName(link))
	}
	if !c.routed() {
		return []Batch{b}
	}
	router := Batch{Netns: Router}
	for link := range c.links() {
		name := fmt.Sprintf("eth%d", link)
		b.plug("r-"+name, switchName(link), Router, name, link, routerHost)
		router.address(name, c.prefixes(link, routerHost))
	}
	batches := []Batch{b, router}
	for _, family := range c.families("-4", "-6") {
		rules := Batch{Netns: Router, Family: family}
		rules.add("rule add iif eth0 lookup %d", podTable)
		batches = append(batches, rules)
	}
	return batches
}

func (c Cluster) links() int {
	if c.routed() {
		return 3
	}
	return 1
}

// WireMachine connects a machine to its link and adds addresses and routes to the other links.
func (c Cluster) WireMachine(m Machine) []Batch {
	wires := Batch{Netns: switchNetns}
	wires.plug("w-"+m.Name, switchName(m.Link), m.Name, "eth0", m.Link, m.Host)
	inside := Batch{Netns: m.Name}
	inside.add("link set lo up")
	inside.address("eth0", m.prefixes)
	gateway := controlPlaneHost
	if c.routed() {
		gateway = routerHost
	}
	if m.Host != gateway {
		for _, p := range c.prefixes(m.Link, gateway) {
			inside.add("route add default via %s", p.Addr())
		}
	}
	return []Batch{wires, inside}
}

// UnplugMachine removes the port of a machine on its link, which may outlive the machine's namespace.
func (c Cluster) UnplugMachine(m Machine) Batch {
	return Batch{Netns: switchNetns, Commands: []string{"link del w-" + m.Name}}
}

// plug makes a veth pair: a port of the bridge, and a device in another namespace of the cluster. The MAC address is made
// of link and host number, so that it is the same after a reboot, as a real card's.
func (b *Batch) plug(port, bridge, netns, device string, link, host int) {
	b.add("link add %s type veth peer name %s address 02:00:c0:a8:%02x:%02x netns %s", port, device, 60+link, host, Netns(netns))
	b.add("link set %s master %s up", port, bridge)
}

func (b *Batch) address(device string, prefixes []netip.Prefix) {
	for _, p := range prefixes {
		option := ""
		if p.Addr().Is6() {
			option = " nodad"
		}
		b.add("address add %s dev %s%s", p, device, option)
	}
	b.add("link set %s up", device)
}

// PodRoutes returns the commands for static routes to the pods of a node, with CIDRs from Kubernetes: in the control
// plane, because the API server connects to pods, and in the router for the control plane. The bridge network has no
// routes of its own, so with it also in all other nodes, and in the router for all. The commands can be repeated.
func (c Cluster) PodRoutes(node Machine, ranges []netip.Prefix) []Batch {
	var batches []Batch
	for _, m := range c.Machines() {
		if m.Name == node.Name || m.IsNode() && c.Options.Network != NetworkBridge {
			continue
		}
		b := Batch{Netns: m.Name}
		for _, r := range ranges {
			b.add("route replace %s via %s", r, c.nextHop(m, node, r))
		}
		batches = append(batches, b)
	}
	if !c.routed() {
		return batches
	}
	router := Batch{Netns: Router}
	for _, r := range ranges {
		via := ofFamily(node.prefixes, r)
		router.add("route replace %s via %s table %d", r, via, podTable)
		if c.Options.Network == NetworkBridge {
			router.add("route replace %s via %s", r, via)
		}
	}
	return append(batches, router)
}

// nextHop returns the next hop from one machine to pods of another, in the family of their CIDR.
func (c Cluster) nextHop(from, to Machine, pods netip.Prefix) netip.Addr {
	if from.Link == to.Link {
		return ofFamily(to.prefixes, pods)
	}
	return ofFamily(c.prefixes(from.Link, routerHost), pods)
}

// ofFamily returns the address of the same family as r. Pods have no family that their node does not have.
func ofFamily(prefixes []netip.Prefix, r netip.Prefix) netip.Addr {
	i := slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() == r.Addr().Is6() })
	return prefixes[i].Addr()
}
