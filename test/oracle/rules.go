package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Few values, so that random selectors match often.
var (
	labelKeys   = []string{"app", "tier"}
	labelValues = []string{"x", "y", "z"}
	portNames   = []string{"http", "dns"}
	usualPorts  = []uint16{1, 53, 80, 81, 443, 8080, 8081, 32000, 50051, 65535}
)

// blocks contain each other, single addresses, pods, nodes and external addresses.
var blocks = all(netip.MustParsePrefix,
	"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.3/32", "10.1.2.0/24", "10.1.2.0/29", "10.1.2.2/32", "10.1.2.9/32",
	"172.30.0.0/24", "172.30.0.1/32", "172.30.0.2/32", "203.0.113.0/24", "203.0.113.0/25", "203.0.113.0/28", "203.0.113.7/32", "203.0.113.8/31",
	"::/0", "fd00::/16", "fd00:1::/32", "fd00:1:1::/64", "fd00:1:2::/64", "fd00:1:2::2/128", "fd00:172:30::/64", "fd00:172:30::1/128",
	"2001:db8::/32", "2001:db8:ffff::/64", "2001:db8:ffff::7/128", "2001:db8:ffff::8/125",
)

func all[T any](parse func(string) T, texts ...string) (parsed []T) {
	for _, text := range texts {
		parsed = append(parsed, parse(text))
	}
	return parsed
}

func randomPolicy(r *rand.Rand, number int) *cluster.NetworkPolicy {
	p := &cluster.NetworkPolicy{
		Namespace: pick(r, namespaces...), Name: fmt.Sprintf("policy-%d", number), Pods: randomSelector(r),
		IsolatesIngress: chance(r, 75), IsolatesEgress: chance(r, 65),
	}
	if chance(r, 3) {
		p.Invalid = "wrong"
		return p
	}
	if p.IsolatesIngress {
		p.Ingress = randomRules(r)
	}
	if p.IsolatesEgress {
		p.Egress = randomRules(r)
	}
	return p
}

func randomRules(r *rand.Rand) (rules []cluster.PolicyRule) {
	for range r.IntN(4) {
		var rule cluster.PolicyRule
		for range r.IntN(4) {
			rule.Peers = append(rule.Peers, randomPeer(r))
		}
		for range r.IntN(4) {
			rule.Ports = append(rule.Ports, randomPort(r))
		}
		rules = append(rules, rule)
	}
	return rules
}

func randomPeer(r *rand.Rand) (peer cluster.PolicyPeer) {
	if chance(r, 50) {
		peer.Block = pick(r, blocks...)
		for _, b := range blocks {
			if b.Bits() > peer.Block.Bits() && peer.Block.Overlaps(b) && chance(r, 20) {
				peer.Except = append(peer.Except, b)
			}
		}
		return peer
	}
	kind := r.IntN(3)
	if kind != 0 {
		s := randomSelector(r)
		peer.Namespaces = &s
	}
	if kind != 1 {
		s := randomSelector(r)
		peer.Pods = &s
	}
	return peer
}

func randomPort(r *rand.Rand) cluster.PolicyPort {
	p := cluster.PolicyPort{Protocol: randomProtocol(r)}
	switch r.IntN(5) {
	case 0: // every port
	case 1:
		p.Name = pick(r, portNames...)
	case 2:
		p.First, p.Last = pick(r, usualPorts...), pick(r, usualPorts...)
		if p.Last < p.First {
			p.First, p.Last = p.Last, p.First
		}
	case 3:
		p.First = uint16(1 + r.IntN(65535))
		p.Last = p.First + uint16(r.IntN(65536-int(p.First)))
	default:
		p.First = pick(r, usualPorts...)
		p.Last = p.First
	}
	return p
}

func randomProtocol(r *rand.Rand) cluster.Protocol {
	return pick(r, cluster.TCP, cluster.TCP, cluster.UDP, cluster.SCTP)
}

func randomSelector(r *rand.Rand) (s cluster.Selector) {
	if chance(r, 40) {
		return s
	}
	for range 1 + r.IntN(2) {
		req := cluster.Requirement{Key: pick(r, labelKeys...)}
		switch r.IntN(6) {
		case 0:
			req.Operator = metav1.LabelSelectorOpExists
		case 1:
			req.Operator = metav1.LabelSelectorOpDoesNotExist
		case 2:
			req.Operator, req.Values = metav1.LabelSelectorOpNotIn, []string{pick(r, labelValues...)}
		case 3:
			req.Operator, req.Values = metav1.LabelSelectorOpIn, []string{"x", pick(r, labelValues...)}
		default:
			req.Operator, req.Values = metav1.LabelSelectorOpIn, []string{pick(r, labelValues...)}
		}
		if chance(r, 10) {
			req = cluster.Requirement{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{pick(r, namespaces...)}}
		}
		s.Requirements = append(s.Requirements, req)
	}
	return s
}
