package plan

import (
	"fmt"
	"net/netip"
	"strings"
)

// CIDRs of the cluster. The controller manager assigns a part of the pod CIDRs to each node.
const (
	PodRange4     = "10.244.0.0/16"
	PodRange6     = "fd00:244::/48"
	ServiceRange4 = "10.96.0.0/16"
	ServiceRange6 = "fd00:96::/112"
)

// ClusterIPs of Services. By Kubernetes' rule the API server has the first of each range.
const (
	apiServiceIP4 = "10.96.0.1"
	apiServiceIP6 = "fd00:96::1"
	dnsServiceIP4 = "10.96.0.10"
	dnsServiceIP6 = "fd00:96::a"
)

// Domain is the cluster domain.
const Domain = "cluster.local"

// APIServerPort is the port of the API server.
const APIServerPort = 6443

// ControlPlane is the name of the control plane's machine, which is not a node.
const ControlPlane = "cp"

// Machine is one machine of the cluster: the control plane or a node.
type Machine struct {
	// Name is its host name and, for nodes, the name in Kubernetes.
	Name string
	// Link is the number of its link: 0, or in the routed topology 1 or 2.
	Link int
	// Host is its number on the link, which is part of its addresses.
	Host int
	// prefixes are its addresses with the prefix length of the link, one for each family of the cluster.
	prefixes []netip.Prefix
}

// IsNode is false for the control plane.
func (m Machine) IsNode() bool { return m.Name != ControlPlane }

// Addresses are the machine's addresses without prefix lengths, IPv4 first.
func (m Machine) Addresses() (addresses []netip.Addr) {
	for _, p := range m.prefixes {
		addresses = append(addresses, p.Addr())
	}
	return addresses
}

// Cluster is the plan of a cluster.
type Cluster struct {
	Options      Options
	ControlPlane Machine
	Nodes        []Machine
}

// New makes the plan of valid options.
func New(o Options) Cluster {
	c := Cluster{Options: o}
	c.ControlPlane = Machine{Name: ControlPlane, Host: controlPlaneHost, prefixes: c.prefixes(0, controlPlaneHost)}
	for i := range o.Nodes {
		n := Machine{Name: fmt.Sprintf("n%d", i+1), Host: 11 + i}
		if o.Topology == TopologyRouted {
			n.Link = 1 + i%2
		}
		n.prefixes = c.prefixes(n.Link, n.Host)
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// Host numbers on links: the control plane, and the router, which is on each link.
const (
	controlPlaneHost = 1
	routerHost       = 254
)

// prefixes returns the addresses of a host on a link.
func (c Cluster) prefixes(link, host int) (all []netip.Prefix) {
	for _, p := range c.families(fmt.Sprintf("192.168.%d.%d/24", 60+link, host), fmt.Sprintf("fd00:60:%d::%d/64", link, host)) {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// Machines returns the control plane and the nodes.
func (c Cluster) Machines() []Machine { return append([]Machine{c.ControlPlane}, c.Nodes...) }

// Node returns a node by name.
func (c Cluster) Node(name string) (Machine, error) {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return Machine{}, fmt.Errorf("no node %q: the cluster has n1 to n%d", name, len(c.Nodes))
}

// APIServer returns the URL of the API server for machines.
func (c Cluster) APIServer() string {
	return "https://" + netip.AddrPortFrom(c.ControlPlane.Addresses()[0], APIServerPort).String()
}

// PodRanges returns the comma-separated CIDRs of all pods.
func (c Cluster) PodRanges() string { return strings.Join(c.families(PodRange4, PodRange6), ",") }

// ServiceRanges returns the comma-separated CIDRs of all Services.
func (c Cluster) ServiceRanges() string {
	return strings.Join(c.families(ServiceRange4, ServiceRange6), ",")
}

// APIServiceIPs returns the possible ClusterIPs of the API server's Service.
func (c Cluster) APIServiceIPs() []netip.Addr {
	var addresses []netip.Addr
	for _, a := range c.families(apiServiceIP4, apiServiceIP6) {
		addresses = append(addresses, netip.MustParseAddr(a))
	}
	return addresses
}

// DNSServiceIP returns the ClusterIP of the cluster's name server.
func (c Cluster) DNSServiceIP() string { return c.families(dnsServiceIP4, dnsServiceIP6)[0] }

// families returns the value of each IP family that the cluster has.
func (c Cluster) families(v4, v6 string) (chosen []string) {
	if c.Options.IPv4() {
		chosen = append(chosen, v4)
	}
	if c.Options.IPv6() {
		chosen = append(chosen, v6)
	}
	return chosen
}
