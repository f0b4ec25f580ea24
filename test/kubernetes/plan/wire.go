package plan

import (
	"fmt"
	"net/netip"
)

// Router is the name of the namespace between the links of the routed topology. It is no machine: nothing runs there.
const Router = "router"

// podTable is where the router keeps the routes to pods. Only what comes from the control plane looks there:
// were nodes allowed to, a tunnel that does not work would not be noticed.
const podTable = 100

// Batch is a list of commands for `ip -batch` in one namespace.
type Batch struct {
	// Netns is the namespace's name.
	Netns string
	// Family is the option of ip for all of its commands: "-6" where no address of theirs tells the family.
	Family string
	// Commands are without the leading "ip". Options cannot be among them: in a batch, ip takes these for objects.
	Commands []string
}

func (b *Batch) add(format string, args ...any) {
	b.Commands = append(b.Commands, fmt.Sprintf(format, args...))
}

// switchName is the bridge of a link.
func switchName(link int) string { return fmt.Sprintf("link%d", link) }

// switchNetns is where the bridges of the links are: they are the wires, so it matters to no machine.
const switchNetns = "wire"

// Namespaces are the names of all network namespaces of the cluster, without prefix, those of wires first.
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

// WireLinks makes the links, which nothing is plugged into yet.
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
		v4, v6 := addresses(c.Options, link, routerHost)
		b.plug("r-"+name, switchName(link), Router, name, link, routerHost)
		router.address(name, v4, v6)
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

// WireMachine plugs a machine into its link and gives it addresses and a way to the other links.
func (c Cluster) WireMachine(m Machine) []Batch {
	wires := Batch{Netns: switchNetns}
	wires.plug("w-"+m.Name, switchName(m.Link), m.Name, "eth0", m.Link, m.Host)
	inside := Batch{Netns: m.Name}
	inside.add("link set lo up")
	inside.address("eth0", m.Address4, m.Address6)
	gateway := controlPlaneHost
	if c.routed() {
		gateway = routerHost
	}
	if m.Host == gateway {
		return []Batch{wires, inside}
	}
	gateway4, gateway6 := addresses(c.Options, m.Link, gateway)
	if gateway4.IsValid() {
		inside.add("route add default via %s", gateway4.Addr())
	}
	if gateway6.IsValid() {
		inside.add("route add default via %s", gateway6.Addr())
	}
	return []Batch{wires, inside}
}

// UnplugMachine removes what of WireMachine is outside of the machine's namespace, and may outlive it.
func (c Cluster) UnplugMachine(m Machine) Batch {
	return Batch{Netns: switchNetns, Commands: []string{"link del w-" + m.Name}}
}

// plug makes a pair of devices, one a port of the bridge, one in another namespace of the cluster. The MAC
// address is made of the link and the number on it, so that it is the same after a reboot, as with real cards.
func (b *Batch) plug(port, bridge, netns, device string, link, host int) {
	b.add("link add %s type veth peer name %s address 02:00:c0:a8:%02x:%02x netns %s", port, device, 60+link, host, Netns(netns))
	b.add("link set %s master %s up", port, bridge)
}

func (b *Batch) address(device string, v4, v6 netip.Prefix) {
	if v4.IsValid() {
		b.add("address add %s dev %s", v4, device)
	}
	if v6.IsValid() {
		b.add("address add %s dev %s nodad", v6, device)
	}
	b.add("link set %s up", device)
}

// PodRoutes are the static routes to the pods of a node, whose ranges Kubernetes chose: in the control plane,
// from where the API server opens connections to pods, and in the router on the way there. With the bridge network,
// which has no routes of its own, also in every other node, and in the router for everybody.
// Commands replace what is there, so they can be repeated.
func (c Cluster) PodRoutes(node Machine, ranges []netip.Prefix) []Batch {
	var batches []Batch
	for _, m := range c.Machines() {
		if m.Name == node.Name || m.IsNode() && c.Options.Network != NetworkBridge {
			continue
		}
		b := Batch{Netns: m.Name}
		for _, r := range ranges {
			via := c.nextHop(m, node, r.Addr().Is6())
			b.add("route replace %s via %s", r, via)
		}
		batches = append(batches, b)
	}
	if !c.routed() {
		return batches
	}
	router := Batch{Netns: Router}
	for _, r := range ranges {
		via := address(node, r.Addr().Is6())
		router.add("route replace %s via %s table %d", r, via, podTable)
		if c.Options.Network == NetworkBridge {
			router.add("route replace %s via %s", r, via)
		}
	}
	return append(batches, router)
}

// nextHop is the first address on the way from one machine to another.
func (c Cluster) nextHop(from, to Machine, six bool) netip.Addr {
	if from.Link == to.Link {
		return address(to, six)
	}
	v4, v6 := addresses(c.Options, from.Link, routerHost)
	if six {
		return v6.Addr()
	}
	return v4.Addr()
}

func address(m Machine, six bool) netip.Addr {
	if six {
		return m.Address6.Addr()
	}
	return m.Address4.Addr()
}
