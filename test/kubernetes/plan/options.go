// Package plan derives everything about a cluster from a few options: names, addresses, paths, and the
// commands that wire it. It touches nothing.
package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The choices of the options that have some.
var (
	Networks   = []string{"beeline", "bridge", "none"}
	Topologies = []string{"flat", "routed"}
	Families   = []string{"ipv4", "ipv6", "dual"}
	Proxies    = []string{ProxyNone, "iptables", "nftables"}
)

// ProxyNone is a cluster without kube-proxy: its network sends traffic for Services to their endpoints.
const ProxyNone = "none"

// MaxNodes is what the plan of addresses has room for.
const MaxNodes = 9

// Options are what a person chooses.
type Options struct {
	// Nodes is the number of nodes, 1 to MaxNodes.
	Nodes int `json:"nodes"`
	// Kubernetes is the version without "v": "1.36.3".
	Kubernetes string `json:"kubernetes"`
	// Network is what pods talk through: one of Networks.
	Network string `json:"network"`
	// Topology is "flat" (all nodes on one link) or "routed" (odd and even nodes on two links, a router between).
	Topology string `json:"topology"`
	// Family is "ipv4", "ipv6" or "dual", which is both with IPv4 first.
	Family string `json:"family"`
	// Proxy is kube-proxy's mode, or ProxyNone.
	Proxy string `json:"proxy"`
	// Note says who uses the cluster and what for; the next one who wants a cluster reads it.
	Note string `json:"note"`
}

// Defaults fills what is zero. Whether there is a kube-proxy depends on whether the network needs one.
func (o Options) Defaults() Options {
	for field, value := range map[*string]string{
		&o.Kubernetes: "1.36.3", &o.Network: "beeline", &o.Topology: "flat", &o.Family: "ipv4",
	} {
		if *field == "" {
			*field = value
		}
	}
	if o.Proxy == "" {
		o.Proxy = "iptables"
		if o.Network == "beeline" {
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
	if o.Network == "bridge" && o.Proxy == ProxyNone {
		errs = append(errs, errors.New("network bridge with proxy none: nobody would do anything for Services"))
	}
	return errors.Join(errs...)
}

// IPv4 tells whether pods, services and nodes have IPv4 addresses.
func (o Options) IPv4() bool { return o.Family != "ipv6" }

// IPv6 tells whether they have IPv6 addresses.
func (o Options) IPv6() bool { return o.Family != "ipv4" }
