package plan

import (
	"fmt"
	"net/netip"
)

// Ranges of the cluster. The pod ranges are cut into one piece per node by the controller manager.
const (
	PodRange4     = "10.244.0.0/16"
	PodRange6     = "fd00:244::/48"
	ServiceRange4 = "10.96.0.0/16"
	ServiceRange6 = "fd00:96::/112"
)

// Well-known addresses of services: the API server's is the first of the range by Kubernetes' own rule.
const (
	APIServiceIP4 = "10.96.0.1"
	APIServiceIP6 = "fd00:96::1"
	DNSServiceIP  = "10.96.0.10"
	Domain        = "cluster.local"
)

// APIServerPort is where the API server listens.
const APIServerPort = 6443

// ControlPlane is the name of the machine that is no node.
const ControlPlane = "cp"

// Machine is one machine of the cluster: the control plane or a node.
type Machine struct {
	// Name is its host name and, for nodes, the name in Kubernetes.
	Name string
	// Link is which of the links it is on: 0, or in the routed topology 1 or 2.
	Link int
	// Address4 and Address6 are with the prefix length of the link; Address6 is zero without IPv6.
	Address4, Address6 netip.Prefix
}

// IsNode is false for the control plane.
func (m Machine) IsNode() bool { return m.Name != ControlPlane }

// Addresses are the machine's addresses without prefix lengths, IPv4 first.
func (m Machine) Addresses() []netip.Addr {
	addresses := []netip.Addr{m.Address4.Addr()}
	if m.Address6.IsValid() {
		addresses = append(addresses, m.Address6.Addr())
	}
	return addresses
}

// Cluster is the whole plan.
type Cluster struct {
	Options      Options
	ControlPlane Machine
	Nodes        []Machine
}

// New makes the plan of valid options.
func New(o Options) Cluster {
	c := Cluster{Options: o, ControlPlane: Machine{Name: ControlPlane}}
	c.ControlPlane.Address4, c.ControlPlane.Address6 = addresses(o, 0, 1)
	for i := range o.Nodes {
		n := Machine{Name: fmt.Sprintf("n%d", i+1)}
		if o.Topology == "routed" {
			n.Link = 1 + i%2
		}
		n.Address4, n.Address6 = addresses(o, n.Link, 11+i)
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// addresses are those of host number host on a link.
func addresses(o Options, link, host int) (v4, v6 netip.Prefix) {
	v4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(60 + link), byte(host)}), 24)
	if o.Dual() {
		v6 = netip.MustParsePrefix(fmt.Sprintf("fd00:60:%d::%d/64", link, host))
	}
	return v4, v6
}

// Machines are the control plane and the nodes.
func (c Cluster) Machines() []Machine { return append([]Machine{c.ControlPlane}, c.Nodes...) }

// Node finds a node by its name.
func (c Cluster) Node(name string) (Machine, error) {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return Machine{}, fmt.Errorf("no node %q: the cluster has n1 to n%d", name, len(c.Nodes))
}

// APIServer is the URL of the API server as machines see it.
func (c Cluster) APIServer() string {
	return fmt.Sprintf("https://%s:%d", c.ControlPlane.Address4.Addr(), APIServerPort)
}

// PodRanges are those of all pods, as components take them: separated by a comma.
func (c Cluster) PodRanges() string { return c.both(PodRange4, PodRange6) }

// ServiceRanges are those of all services, separated by a comma.
func (c Cluster) ServiceRanges() string { return c.both(ServiceRange4, ServiceRange6) }

func (c Cluster) both(v4, v6 string) string {
	if c.Options.Dual() {
		return v4 + "," + v6
	}
	return v4
}
