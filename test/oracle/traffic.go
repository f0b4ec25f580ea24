package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
)

// ICMP and ICMPv6 are protocols that NetworkPolicies cannot name.
const (
	ICMP   cluster.Protocol = 1
	ICMPv6 cluster.Protocol = 58
)

// others are addresses that are no pod's, of each family.
var others = [2][]netip.Addr{
	all(netip.MustParseAddr, "203.0.113.7", "203.0.113.8", "203.0.113.9", "203.0.113.20", "203.0.113.200", "198.51.100.1", "10.1.2.6", "10.1.2.9", "10.1.2.77", "172.30.0.2"),
	all(netip.MustParseAddr, "2001:db8:ffff::7", "2001:db8:ffff::9", "2001:db8:ffff::77", "2001:db8:1::1", "fd00:1:2::99", "fd00:172:30::2"),
}

// Traffic makes traffic with a pod of this node at one end or both. Both ends have addresses.
func (w Cluster) Traffic(r *rand.Rand) evaluate.Traffic {
	var t evaluate.Traffic
	family := r.IntN(2)
	own := w.Own()
	pod := own[r.IntN(len(own))]
	one := evaluate.Endpoint{Pod: pod.Key(), Address: pod.Addresses[family]}
	t.Source, t.Destination = one, w.end(r, family, pod)
	if chance(r, 50) {
		t.Source, t.Destination = t.Destination, t.Source
	}
	t.Source.Masqueraded = t.Source.Address == nodes[0].Addresses[family] && chance(r, 70)
	t.Port = uint16(1 + r.IntN(65535))
	if chance(r, 80) {
		t.Port = pick(r, usualPorts...)
	}
	switch r.IntN(8) {
	case 0:
		t.Protocol, t.Port = ICMP, 0
		if family == 1 {
			t.Protocol = ICMPv6
		}
	case 1:
		t.Protocol = cluster.SCTP
	case 2, 3:
		t.Protocol = cluster.UDP
	default:
		t.Protocol = cluster.TCP
	}
	return t
}

// end returns another end for traffic with a pod, of a family: a pod, another address, or this node.
func (w Cluster) end(r *rand.Rand, family int, not *cluster.Pod) evaluate.Endpoint {
	if chance(r, 8) {
		return evaluate.Endpoint{Address: nodes[0].Addresses[family]}
	}
	if chance(r, 65) {
		var possible []evaluate.Endpoint
		for p := range w.Pods.All() {
			for _, a := range p.Addresses {
				if p != not && !p.Ended && !(p.HostNetwork && p.Node == Here) && a.Is4() == (family == 0) {
					possible = append(possible, evaluate.Endpoint{Pod: p.Key(), Address: a})
				}
			}
		}
		if len(possible) > 0 {
			return pick(r, possible...)
		}
	}
	return evaluate.Endpoint{Address: pick(r, others[family]...)}
}

// Describe formats traffic in one line.
func Describe(t evaluate.Traffic) string {
	end := func(e evaluate.Endpoint) string {
		if e.Masqueraded {
			return e.Address.String() + " (masqueraded)"
		}
		if e.Pod == (cluster.Key{}) {
			return e.Address.String()
		}
		return fmt.Sprintf("%s (%s)", e.Pod, e.Address)
	}
	protocol := t.Protocol.String()
	if t.Protocol == ICMP || t.Protocol == ICMPv6 {
		return fmt.Sprintf("ICMP echo from %s to %s", end(t.Source), end(t.Destination))
	}
	return fmt.Sprintf("%s from %s to %s, port %d", protocol, end(t.Source), end(t.Destination), t.Port)
}
