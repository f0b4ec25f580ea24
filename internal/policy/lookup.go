package policy

import "net/netip"

// Identity gives who is behind an address.
func (t *Tables) Identity(addr netip.Addr) Identity {
	if i, known := t.Identities[addr]; known {
		return i
	}
	if i, known := t.Singles[addr]; known {
		return i
	}
	for bits := addr.BitLen() - 1; bits >= 0; bits-- {
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
	set := subject.Ingress
	if direction == Egress {
		set = subject.Egress
	}
	identity := t.Identity(with)
	switch {
	case set == NotIsolated || identity == IdentityNode:
		return true, 0
	case set == Closed:
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
