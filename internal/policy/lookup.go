package policy

// This file is the reference for tests of several packages: the lookups of bpf/lib/policy in Tables. No product code uses it.

import "net/netip"

// Identity returns the identity of an address.
func (t *Tables) Identity(addr netip.Addr) Identity {
	if i, known := t.Identities[addr]; known {
		return i
	}
	if i, known := t.Peers.Get(addr); known {
		return i
	}
	if i, known := t.Singles[addr]; known {
		return i
	}
	return t.block(addr)
}

// block returns the identity of an address by Blocks alone.
func (t *Tables) block(addr netip.Addr) Identity {
	for bits := addr.BitLen(); bits >= 0; bits-- {
		prefix, err := addr.Prefix(bits)
		if err != nil {
			break // addresses with a zone are in no block
		}
		if i, known := t.Blocks[prefix]; known {
			return i
		}
	}
	return IdentityUnknown
}

// Verdict evaluates traffic between a pod with these sets and an address, as the datapath does. port is the destination's, in
// host byte order; 0 for protocols without ports, which match only rules without ports. by is the NetworkPolicy that allows it;
// 0 if none is needed.
func (t *Tables) Verdict(subject Sets, direction Direction, with netip.Addr, protocol uint8, port uint16) (allowed bool, by Policy) {
	identity := t.Identity(with)
	if identity == IdentityNode {
		return true, 0
	}
	return t.verdict(subject.in(direction), identity, protocol, port)
}

// VerdictMasqueraded is Verdict for ingress from an address of this node that another sender has: the node forwards and
// masquerades for it.
func (t *Tables) VerdictMasqueraded(subject Sets, from netip.Addr, protocol uint8, port uint16) (allowed bool, by Policy) {
	return t.verdict(subject.Ingress, t.block(from), protocol, port)
}

func (s Sets) in(direction Direction) Set {
	if direction == Egress {
		return s.Egress
	}
	return s.Ingress
}

func (t *Tables) verdict(set Set, identity Identity, protocol uint8, port uint16) (allowed bool, by Policy) {
	switch set {
	case NotIsolated:
		return true, 0
	case DenyAll:
		return false, 0
	}
	ports, known := t.Policies[Peer{set, identity}]
	if !known && identity.IsPod() {
		ports, known = t.Policies[Peer{set, IdentityPod}]
	}
	if !known {
		ports = t.Policies[Peer{set, IdentityUnknown}]
	}
	if ports == 0 {
		return false, 0
	}
	for bits := 16; bits >= 0; bits-- {
		mask := uint16(0xffff << (16 - bits))
		if by, found := t.Ports[PortPrefix{ports, uint8(8 + bits), protocol, port & mask}]; found {
			return true, by
		}
	}
	by, allowed = t.Ports[PortPrefix{Ports: ports}]
	return allowed, by
}
