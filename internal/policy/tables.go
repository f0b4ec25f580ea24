// Package policy compiles NetworkPolicies into the tables that the datapath judges by. It is pure: snapshots go in,
// tables and complaints come out, and nothing here knows of the kernel or of an API server.
package policy

import (
	"net/netip"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Identity says who is behind an address, as far as policies tell addresses apart: all pods of the cluster with the same
// labels, by every selector in force, have one number, and so have all addresses in the same ipBlocks. Numbers are hashes of
// what they stand for, so that an agent that starts again makes the same ones.
type Identity uint32

// Identities with a meaning of their own; they are enum identity of bpf/types_policy.h.
const (
	// IdentityUnknown is that of addresses which are neither a pod's nor in any ipBlock. As a key of Tables.Policies it stands
	// for everybody without an entry.
	IdentityUnknown Identity = 0
	// IdentityNode is this node itself, which may reach its own pods and be reached by them whatever policies say.
	IdentityNode Identity = 1
	// IdentityPod is the bit that identities of pods have and no others. Alone, as a key of Tables.Policies, it
	// stands for every pod without an entry.
	IdentityPod Identity = 1 << 31
)

// IsPod tells whether this is an identity of pods.
func (i Identity) IsPod() bool { return i&IdentityPod != 0 }

// Set is the number of the rules that hold for a pod in one direction: those of all NetworkPolicies that select it.
type Set uint32

// Sets with a meaning of their own.
const (
	// NotIsolated allows everything: no NetworkPolicy selects the pod in that direction.
	NotIsolated Set = 0
	// Closed allows nothing, since what governs the pod is not known or could not be put into force.
	Closed Set = 0xffffffff
)

// Sets are those of a pod in both directions.
type Sets struct{ Ingress, Egress Set }

// Peer is a key of Tables.Policies: whom a set is asked about. In a set for ingress that is the sender, in one for
// egress the receiver.
type Peer struct {
	Set      Set
	Identity Identity
}

// Ports is the number of a list of protocols and ports that are allowed; 0 is the empty one.
type Ports uint32

// PortPrefix is a key of Tables.Ports: a range of ports whose size is a power of two and which begins at a multiple of it.
type PortPrefix struct {
	Ports Ports
	// Bits is 0 for every protocol, 8 for all ports of Protocol, and 24 for a single port.
	Bits     uint8
	Protocol uint8 // IP protocol number
	// Port has zeros behind its first Bits-8 bits.
	Port uint16
}

// Policy is the number by which the datapath tells which NetworkPolicy has allowed something; 0 is none.
type Policy uint32

// Direction is that of traffic as a pod sees it.
type Direction uint8

// The directions.
const (
	Ingress Direction = iota
	Egress
)

// String gives the word for people.
func (d Direction) String() string {
	if d == Egress {
		return "egress"
	}
	return "ingress"
}

// Tables are what the datapath judges by. What is allowed between a set and an identity is what the first entry of Policies says
// that there is, of: the identity's own, that of IdentityPod if it is a pod, that of IdentityUnknown. No entry allows nothing. An
// identity has an entry of its own only if it is allowed more than it would be otherwise; never less, for rules only allow.
//
// Nobody changes Tables once they are made, and a map that is as it was in the Tables before is the same map: who puts them into force
// compares maps first, and has nothing to do for a list of 100,000 addresses when a label changes.
//
// Numbers stand for content, so the entries of Policies and Ports have the same value in all Tables that have them. New Tables
// take the place of others without a moment in which anything is more open than both, if they are written in this order: Ports, new entries
// of Policies; then Singles and Identities, and Blocks with longer prefixes before shorter ones; then Pods; then what is there no
// more is deleted, of Blocks shorter prefixes before longer ones, then Singles and Identities, Policies, and Ports. What is added to
// Singles and Blocks may forbid as well as allow: what a block excepts is an entry within it, with fewer rules that it meets.
type Tables struct {
	// Pods are the pods of this node that a policy selects in some direction, by each of their addresses. Sets are of one family:
	// those of a pod's two addresses differ where rules have ipBlocks.
	Pods map[netip.Addr]Sets
	// Identities are those of this node and Peers those of pods. Singles are the other addresses that are an ipBlock by themselves; none is in
	// two of the three. Before them, Blocks, by the longest prefix, are not asked; but they have the singles that are addresses of this node, for who has
	// such an address without being the node (see VerdictMasqueraded).
	Identities map[netip.Addr]Identity
	Peers      *Peers
	Singles    map[netip.Addr]Identity
	Blocks     map[netip.Prefix]Identity
	Policies   map[Peer]Ports
	Ports      map[PortPrefix]Policy
	// Names are those of the numbers in Ports.
	Names map[Policy]cluster.Key
	// Selected are, by pod of this node, the NetworkPolicies that select it, sorted. The datapath has no use for it.
	Selected map[cluster.Key][]cluster.Key
}
