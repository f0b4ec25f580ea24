package policy

import (
	"cmp"
	"encoding/binary"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

func New(m *bpf.Maps, g *table.Generation) *Table {
	p := &Table{conntrack: m.Conntrack, generation: g, isolated: map[netip.Addr]bool{}, identities: identityTable{m: m.Identities}}
	p.pods.name, p.pods.m = bpf.MapPolicyPods, m.PolicyPods
	p.pods.key, p.pods.keyOf = bpf.AddressOf, bpf.Address.Addr
	p.pods.value = func(s policy.Sets) bpf.PolicyPod {
		return bpf.PolicyPod{Ingress: uint32(s.Ingress), Egress: uint32(s.Egress)}
	}
	p.pods.valueOf = func(v bpf.PolicyPod) policy.Sets {
		return policy.Sets{Ingress: policy.Set(v.Ingress), Egress: policy.Set(v.Egress)}
	}

	p.blocks.name, p.blocks.m = bpf.MapIdentityCidrs, m.IdentityCidrs
	p.blocks.key, p.blocks.keyOf = blockKeyOf, prefixOf
	p.blocks.value, p.blocks.valueOf = number[policy.Identity], numbered[policy.Identity]
	p.blocks.order = compareBlocks

	p.policies.name, p.policies.m = bpf.MapPolicies, m.Policies
	p.policies.key = func(k policy.Peer) bpf.PolicyKey {
		return bpf.PolicyKey{Set: uint32(k.Set), Identity: uint32(k.Identity)}
	}
	p.policies.keyOf = func(k bpf.PolicyKey) policy.Peer {
		return policy.Peer{Set: policy.Set(k.Set), Identity: policy.Identity(k.Identity)}
	}
	p.policies.value, p.policies.valueOf = number[policy.Ports], numbered[policy.Ports]

	p.ports.name, p.ports.m = bpf.MapPolicyPorts, m.PolicyPorts
	p.ports.key, p.ports.keyOf = policyPortKeyOf, portPrefixOf
	p.ports.value, p.ports.valueOf = number[policy.Policy], numbered[policy.Policy]
	return p
}

func number[T ~uint32](v T) uint32   { return uint32(v) }
func numbered[T ~uint32](v uint32) T { return T(v) }

func blockKeyOf(p netip.Prefix) bpf.IdentityCidrKey {
	k := bpf.RouteKeyOf(p)
	return bpf.IdentityCidrKey{PrefixLen: k.PrefixLen, Address: k.Address}
}

// compareBlocks orders longer prefixes first, by their length in the map, where IPv4 prefixes are 96 bits longer. So
// the IPv4 guard comes before the IPv6 prefixes that contain it.
func compareBlocks(a, b netip.Prefix) int {
	if lengths := cmp.Compare(bpf.PrefixLen(b), bpf.PrefixLen(a)); lengths != 0 {
		return lengths
	}
	return a.Addr().Compare(b.Addr())
}

func prefixOf(k bpf.IdentityCidrKey) netip.Prefix {
	return bpf.RouteKey{PrefixLen: k.PrefixLen, Address: k.Address}.Prefix()
}

// portsLen is the length of the port-list number with which a key of `policy_ports` starts.
const portsLen = 32

func policyPortKeyOf(p policy.PortPrefix) bpf.PolicyPortKey {
	k := bpf.PolicyPortKey{PrefixLen: portsLen + uint32(p.Bits), Ports: bpf.HostOrder(uint32(p.Ports)), Protocol: p.Protocol}
	binary.BigEndian.PutUint16(k.Port[:], p.Port)
	return k
}

func portPrefixOf(k bpf.PolicyPortKey) policy.PortPrefix {
	return policy.PortPrefix{
		Ports: policy.Ports(bpf.HostOrder(k.Ports)), Bits: uint8(k.PrefixLen - portsLen), Protocol: k.Protocol,
		Port: binary.BigEndian.Uint16(k.Port[:]),
	}
}
