// Package plan derives everything about a cluster from a few options: names, addresses, paths, and the
// commands that wire it. It touches nothing.
package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/kubebuild"
)

// The choices of the options that have some.
var (
	Networks   = []string{NetworkBeeline, NetworkBridge, NetworkNone}
	Topologies = []string{TopologyFlat, TopologyRouted}
	Families   = []string{FamilyIPv4, FamilyIPv6, FamilyDual}
	Proxies    = []string{ProxyNone, ProxyIPTables, ProxyNFTables}
)

// What pods talk through.
const (
	NetworkBeeline = "beeline"
	// NetworkBridge is the reference plugins.
	NetworkBridge = "bridge"
	// NetworkNone is for who installs a network.
	NetworkNone = "none"
)

// How nodes are joined.
const (
	// TopologyFlat is all nodes on one link.
	TopologyFlat = "flat"
	// TopologyRouted is odd and even nodes on two links, with a router between.
	TopologyRouted = "routed"
)

// The addresses of pods, Services and nodes.
const (
	FamilyIPv4 = "ipv4"
	FamilyIPv6 = "ipv6"
	// FamilyDual is both, with IPv4 first.
	FamilyDual = "dual"
)

// Modes of kube-proxy.
const (
	// ProxyNone is a cluster without kube-proxy: its network sends traffic for Services to their endpoints.
	ProxyNone     = "none"
	ProxyIPTables = "iptables"
	ProxyNFTables = "nftables"
)

// MaxNodes is the maximum number of nodes in the address plan.
const MaxNodes = 9

// Options are what a person chooses.
type Options struct {
	// Nodes is the number of nodes, 1 to MaxNodes.
	Nodes int `json:"nodes"`
	// Kubernetes is the version without "v": "1.36.3".
	Kubernetes string `json:"kubernetes"`
	// Network is what pods talk through: one of Networks.
	Network string `json:"network"`
	// Topology is how nodes are joined: one of Topologies.
	Topology string `json:"topology"`
	// Family is one of Families.
	Family string `json:"family"`
	// Proxy is one of Proxies.
	Proxy string `json:"proxy"`
	// Note says who uses the cluster and what for; the next one who wants a cluster reads it.
	Note string `json:"note"`
}

// Defaults fills what is zero. Whether there is a kube-proxy depends on whether the network needs one.
func (o Options) Defaults() Options {
	for field, value := range map[*string]string{
		&o.Kubernetes: kubebuild.Version, &o.Network: NetworkBeeline, &o.Topology: TopologyFlat, &o.Family: FamilyIPv4,
	} {
		if *field == "" {
			*field = value
		}
	}
	if o.Proxy == "" {
		o.Proxy = ProxyIPTables
		if o.Network == NetworkBeeline {
			o.Proxy = ProxyNone
		}
	}
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	return o
}

var version = regexp.MustCompile(`^1\.[0-9]+\.[0-9]+$`)

// Validate names every option that is wrong.
func (o Options) Validate() error {
	var errs []error
	if o.Nodes < 1 || o.Nodes > MaxNodes {
		errs = append(errs, fmt.Errorf("%d nodes: want 1 to %d", o.Nodes, MaxNodes))
	}
	if !version.MatchString(o.Kubernetes) {
		errs = append(errs, fmt.Errorf("version %q of Kubernetes: want one like 1.36.3", o.Kubernetes))
	}
	for _, c := range []struct {
		name, value string
		choices     []string
	}{
		{"network", o.Network, Networks},
		{"topology", o.Topology, Topologies},
		{"family", o.Family, Families},
		{"proxy", o.Proxy, Proxies},
	} {
		if !slices.Contains(c.choices, c.value) {
			errs = append(errs, fmt.Errorf("%s %q: want one of %s", c.name, c.value, strings.Join(c.choices, ", ")))
		}
	}
	if o.Network == NetworkBridge && o.Proxy == ProxyNone {
		errs = append(errs, errors.New("network bridge with proxy none: nothing would implement Services"))
	}
	return errors.Join(errs...)
}

// IPv4 tells whether pods, services and nodes have IPv4 addresses.
func (o Options) IPv4() bool { return o.Family != FamilyIPv6 }

// IPv6 tells whether they have IPv6 addresses.
func (o Options) IPv6() bool { return o.Family != FamilyIPv4 }
