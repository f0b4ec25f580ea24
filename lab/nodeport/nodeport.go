// Package nodeport measures what forwarding to a NodePort costs: packets of a client outside of the cluster come to a
// node, which translates them and sends them to a pod of another node.
//
// Each network has a lab of two nodes with a switch between them (testbed.Options.Outside). Packets are made at the
// switch's port to the first node by package packetgen and reach that node as from a network card, without an skb. What
// it forwards comes back to the same port, hairpin, as on a node with one network card. From there they go on according
// to the placement:
//
//   - forwarder-core: they are counted at that port, which is the end of the wire to the backend's node, and end there.
//     The first node's NAPI runs in a thread of its own, alone on one CPU; generator and counter share another one.
//   - one-core: they go on to the second node, by XDP past the switch, and into the pod, where they are counted. NAPI
//     runs where packets are sent, in softirqs of one CPU, so nothing is lost on the way: the rate is the inverse of what
//     the whole path costs.
//
// The same lab carries TCP through the NodePort by the usual tools, all on one core.
package nodeport

import (
	"slices"

	"github.com/beeline-cni/beeline/lab/network"
)

// Networks are those of this bench, the bound first, in the order in which tables show them.
func Networks() []network.Network {
	all := []network.Network{network.Forwarding{}}
	for _, p := range network.NodePortProxies() {
		all = append(all, p)
	}
	return all
}

// Names are those of Networks.
func Names() []string {
	var names []string
	for _, c := range Networks() {
		names = append(names, c.Name())
	}
	return names
}

// named gives the networks of these names in the order of Networks, and the names that are none; all for no names.
func named(names []string) (list []network.Network, unknown []string) {
	for _, c := range Networks() {
		if len(names) == 0 || slices.Contains(names, c.Name()) {
			list = append(list, c)
		}
	}
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			unknown = append(unknown, name)
		}
	}
	return list, unknown
}
