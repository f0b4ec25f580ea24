package policy

// What is in this file is the reference for tests, of this package and of others: what the tables say, as bpf/lib/policy/policy.h finds it in
// the maps. Nothing that runs on a node asks it.

import "net/netip"

// Identity gives who is behind an address.
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

// block gives who is behind an address by Blocks alone.
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

// Verdict judges as the datapath does: may a pod with these sets have traffic in a direction with an address? port is the
// destination's; 0 for protocols without ports, which only rules allow that name no port. by is the NetworkPolicy that allows it: none if
// it needs none.
func (t *Tables) Verdict(subject Sets, direction Direction, with netip.Addr, protocol uint8, port uint16) (allowed bool, by Policy) {
	identity := t.Identity(with)
	if identity == IdentityNode {
		return true, 0
	}
	return t.verdict(subject.in(direction), identity, protocol, port)
}

// VerdictMasqueraded is Verdict for ingress from somebody who bears an address of this node without being the node: whoever the node
// forwards and masquerades.
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
	case Closed:
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
