// Package plan derives a cluster's names, addresses, paths and network commands from a few options. It changes nothing.
package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/kubebuild"
)

// Values of the options with a fixed choice.
var (
	Networks   = []string{NetworkBeeline, NetworkBridge, NetworkNone}
	Topologies = []string{TopologyFlat, TopologyRouted}
	Families   = []string{FamilyIPv4, FamilyIPv6, FamilyDual}
	Proxies    = []string{ProxyNone, ProxyIPTables, ProxyNFTables}
	AllPools   = []string{PoolsNone, PoolsMacvlan, PoolsMixed}
)

// Networks of the pods.
const (
	NetworkBeeline = "beeline"
	// NetworkBridge is the reference plugins.
	NetworkBridge = "bridge"
	// NetworkNone is no network: the user installs one.
	NetworkNone = "none"
)

// Topologies of the nodes.
const (
	// TopologyFlat is all nodes on one link.
	TopologyFlat = "flat"
	// TopologyRouted is odd and even nodes on two links, with a router between them.
	TopologyRouted = "routed"
)

// IP families of pods, Services and nodes.
const (
	FamilyIPv4 = "ipv4"
	FamilyIPv6 = "ipv6"
	// FamilyDual is both families, IPv4 first.
	FamilyDual = "dual"
)

// Modes of kube-proxy.
const (
	// ProxyNone is a cluster without kube-proxy: its network implements Services.
	ProxyNone     = "none"
	ProxyIPTables = "iptables"
	ProxyNFTables = "nftables"
)

// MaxNodes is the maximum number of nodes in the address plan.
const MaxNodes = 9

// Options are the options of a cluster.
type Options struct {
	// Nodes is the number of nodes, 1 to MaxNodes.
	Nodes int `json:"nodes"`
	// Kubernetes is the version without "v": "1.36.3".
	Kubernetes string `json:"kubernetes"`
	// Network is one of Networks.
	Network string `json:"network"`
	// Topology is one of Topologies.
	Topology string `json:"topology"`
	// Family is one of Families.
	Family string `json:"family"`
	// Proxy is one of Proxies.
	Proxy string `json:"proxy"`
	// Pools is one of AllPools.
	Pools string `json:"pools"`
	// Note is who uses the cluster and why, for its other users.
	Note string `json:"note"`
}

// Defaults sets zero fields. The default of Proxy depends on Network.
func (o Options) Defaults() Options {
	for field, value := range map[*string]string{
		&o.Kubernetes: kubebuild.Version, &o.Network: NetworkBeeline, &o.Topology: TopologyFlat, &o.Family: FamilyIPv4,
		&o.Pools: PoolsNone,
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

// Validate returns an error with all invalid options.
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
		{"pools", o.Pools, AllPools},
	} {
		if !slices.Contains(c.choices, c.value) {
			errs = append(errs, fmt.Errorf("%s %q: want one of %s", c.name, c.value, strings.Join(c.choices, ", ")))
		}
	}
	if o.Network == NetworkBridge && o.Proxy == ProxyNone {
		errs = append(errs, errors.New("network bridge with proxy none: Services would not work"))
	}
	if o.Pools != PoolsNone && (o.Network != NetworkBeeline || o.Topology != TopologyFlat) {
		errs = append(errs, fmt.Errorf("pools %s with network %s and topology %s: pools need Beeline, and all nodes on one link", o.Pools, o.Network, o.Topology))
	}
	return errors.Join(errs...)
}

// IPv4 reports whether pods, Services and nodes have IPv4 addresses.
func (o Options) IPv4() bool { return o.Family != FamilyIPv6 }

// IPv6 reports whether pods, Services and nodes have IPv6 addresses.
func (o Options) IPv6() bool { return o.Family != FamilyIPv4 }
