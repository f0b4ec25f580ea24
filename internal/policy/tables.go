// Package policy compiles NetworkPolicies into the tables from which the datapath evaluates policy. It is pure: it has no
// clients and makes no system calls.
package policy

import (
	"bytes"
	"cmp"
	"iter"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/sorted"
)

// Identity is the number of a class of addresses that policies treat alike: all pods of the cluster whose labels match the same
// active selectors, or all addresses in the same ipBlocks. Numbers are hashes of that content, so that a restarted agent
// computes the same ones.
type Identity uint32

// Reserved identities; enum identity of bpf/types_policy.h.
const (
	// IdentityUnknown is the identity of addresses that are neither a pod's nor in any ipBlock. As a key of Tables.Policies it
	// is the default for identities without an entry.
	IdentityUnknown Identity = 0
	// IdentityNode is this node. Traffic between it and its own pods is always allowed.
	IdentityNode Identity = 1
	// IdentityPod is the bit that only identities of pods have. Alone, as a key of Tables.Policies, it is the default for pods
	// without an entry.
	IdentityPod Identity = 1 << 31
)

// IsPod reports whether this is an identity of pods.
func (i Identity) IsPod() bool { return i&IdentityPod != 0 }

// Set is the number of a pod's rules in one direction: those of all NetworkPolicies that select it.
type Set uint32

// Reserved sets.
const (
	// NotIsolated allows everything: no NetworkPolicy selects the pod in that direction.
	NotIsolated Set = 0
	// DenyAll allows nothing: the pod's policies are unknown or could not be applied.
	DenyAll Set = 0xffffffff
)

// Sets are the sets of a pod in both directions.
type Sets struct{ Ingress, Egress Set }

// Peer is a key of Tables.Policies. In a set for ingress the identity is the sender's, in one for egress the receiver's.
type Peer struct {
	Set      Set
	Identity Identity
}

// Ports is the number of a list of allowed protocols and ports; 0 is the empty list.
type Ports uint32

// PortPrefix is a key of Tables.Ports: a range of ports whose size is a power of two and whose start is a multiple of it.
type PortPrefix struct {
	Ports Ports
	// Bits is 0 for every protocol, 8 for all ports of Protocol, and 24 for a single port.
	Bits     uint8
	Protocol uint8 // IP protocol number
	// Port is in host byte order; the bits after the first Bits-8 are zero.
	Port uint16
}

// Policy is the number of the NetworkPolicy that allows something, for flow events; 0 is none.
type Policy uint32

// Direction is the direction of traffic from the pod's perspective.
type Direction uint8

// The directions.
const (
	Ingress Direction = iota
	Egress
)

// String returns "ingress" or "egress".
func (d Direction) String() string {
	if d == Egress {
		return "egress"
	}
	return "ingress"
}

// Tables are the content of the datapath's policy maps. A set allows an identity what the first of these entries in Policies
// says: the identity's own, that of IdentityPod for a pod, that of IdentityUnknown. Without an entry nothing is allowed. An
// identity has its own entry only if it is allowed more than by default; rules only allow, so it is never less.
//
// Tables are immutable. A map that did not change is the same map as in the previous Tables, so that applying them can skip it:
// a label change costs nothing for a list of 100,000 addresses.
//
// Numbers are hashes of content, so the entries of Policies and Ports have the same value in all Tables that have them. At no
// moment is anything allowed that neither the old nor the new Tables allow, if new Tables are written in this order: Ports, new
// entries of Policies; Identities and Peers; Blocks, longer prefixes before shorter ones; Pods; then stale entries are
// deleted: Blocks, shorter prefixes before longer ones, Identities and Peers, Policies, Ports. An addition to Blocks may deny
// as well as allow: an exception of a block is an entry within it that matches fewer rules.
type Tables struct {
	// Pods are the pods of this node that a policy selects in some direction, by each of their addresses. Sets are of one
	// family: those of a pod's two addresses differ where rules have ipBlocks.
	Pods map[netip.Addr]Sets
	// Identities are those of this node's addresses and Peers those of pods; no address is in both. All others are looked up in
	// Blocks by the longest prefix, and so is an address of this node in a packet that the node forwards for others.
	Identities map[netip.Addr]Identity
	Peers      *Peers
	Blocks     map[netip.Prefix]Identity
	Policies   map[Peer]Ports
	Ports      map[PortPrefix]Policy
	// Names are the policies of the numbers in Ports.
	Names map[Policy]cluster.Key
	// Selected are the NetworkPolicies that select each pod of this node, sorted; the datapath does not use it.
	Selected map[cluster.Key][]cluster.Key
}

// Peers are the identities of pods by address. Peers are immutable and share most of their memory with the previous ones: a
// changed pod costs some kilobytes, not a table of 150,000 addresses. nil is empty.
type Peers struct {
	list peerList
}

type peerList = sorted.List[addressKey, peerIdentity]

// peerIdentity is an address with its identity, in 20 bytes without pointers for the garbage collector to follow.
type peerIdentity struct {
	address  addressKey
	identity Identity
}

// Key returns the address.
func (p peerIdentity) Key() addressKey { return p.address }

// Compare orders addresses.
func (k addressKey) Compare(other addressKey) int { return bytes.Compare(k[:], other[:]) }

func (p *Peers) entries() peerList {
	if p == nil {
		return peerList{}
	}
	return p.list
}

// Get returns the identity of an address, if it is a pod's.
func (p *Peers) Get(addr netip.Addr) (identity Identity, known bool) {
	entry, known := p.entries().Find(addr.As16())
	return entry.identity, known
}

// Len counts the addresses.
func (p *Peers) Len() int { return p.entries().Len() }

// All iterates over the addresses with their identities.
func (p *Peers) All() iter.Seq2[netip.Addr, Identity] {
	return func(yield func(netip.Addr, Identity) bool) {
		for entry := range p.entries().All() {
			if !yield(entry.address.address(), entry.identity) {
				return
			}
		}
	}
}

// PeerDifference is an address whose identity changed. IdentityUnknown means that it has none any more.
type PeerDifference struct {
	Address     netip.Addr
	Before, Now Identity
}

// Since iterates over the differences to other Peers. It skips what both share.
func (p *Peers) Since(before *Peers) iter.Seq[PeerDifference] {
	return func(yield func(PeerDifference) bool) {
		for was, is := range sorted.Differences(before.entries(), p.entries()) {
			if !yield(PeerDifference{cmp.Or(was.address, is.address).address(), was.identity, is.identity}) {
				return
			}
		}
	}
}

// With returns Peers with other identities for some addresses; IdentityUnknown removes one. Without a change it returns p.
func (p *Peers) With(identities map[netip.Addr]Identity) *Peers {
	changes := map[addressKey]peerIdentity{}
	for addr, identity := range identities {
		if before, _ := p.Get(addr); before == identity {
			continue
		}
		address := addressKey(addr.As16())
		if changes[address] = (peerIdentity{}); identity != IdentityUnknown {
			changes[address] = peerIdentity{address, identity}
		}
	}
	if len(changes) == 0 {
		return p
	}
	return &Peers{p.entries().With(changes)}
}
