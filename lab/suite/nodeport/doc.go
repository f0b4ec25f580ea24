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
