package service

import (
	"fmt"
	"net/netip"
	"slices"
)

// collectExternals finds the Service's external addresses, load balancers' first, and reports for each kind which one it may
// not have, and why.
func (t *translation) collectExternals() {
	s := t.service
	t.externals = t.externals[:0]
	t.addExternalAddresses(s.LoadBalancerIPs, KindLoadBalancer, func(netip.Addr) bool { return false })
	t.addExternalAddresses(s.ExternalIPs, KindExternalIP, func(a netip.Addr) bool { return slices.Contains(s.LoadBalancerIPs, a) })
}

// addExternalAddresses adds the addresses of one kind, except addresses that the Service has anyway.
func (t *translation) addExternalAddresses(addrs []netip.Addr, kind Kind, has func(netip.Addr) bool) {
	rejected, first, reason, local := 0, netip.Addr{}, "", false
	bound := len(t.externals) + t.node.Limits.serviceExternal()
	for _, addr := range addrs {
		if has(addr) || slices.Contains(t.service.ClusterIPs, addr) {
			continue
		}
		why, own := t.reject(addr, kind)
		switch {
		case why != "" && rejected == 0:
			rejected, first, reason, local = 1, addr, why, own
		case why != "":
			rejected++
		case len(t.externals) < bound:
			t.externals = append(t.externals, externalAddress{addr, kind})
		default:
			t.excess[external] += len(t.service.Ports)
		}
	}
	if rejected == 0 {
		return
	}
	text := fmt.Sprintf("Service %s: %s %s does not answer: %s", t.service.Key(), externalNames[kind], first, reason)
	if rejected > 1 {
		text += fmt.Sprintf(" (and %d more of its addresses are refused)", rejected-1)
	}
	if local {
		t.local = append(t.local, text)
	} else {
		t.problems = append(t.problems, text)
	}
}

// reject returns why the Service must not answer at an external address, and whether only this node has the reason.
func (t *translation) reject(addr netip.Addr, kind Kind) (why string, local bool) {
	if why := t.node.reject(addr, kind); why != "" {
		return why, false
	}
	if t.reserved != nil {
		if why := t.reserved.reject(addr); why != "" {
			return why, false
		}
		if why := t.reserved.rejectPool(addr); kind == KindExternalIP && why != "" {
			return why, false
		}
	}
	why = t.node.rejectLocal(addr)
	return why, true
}

var externalNames = map[Kind]string{KindExternalIP: "externalIP", KindLoadBalancer: "load balancer's address"}

// addExternals adds a port's frontends at external addresses up to the Service's limit. It does not even iterate over the
// excess: a Service with 1,000 ports and 1,000 addresses requests a million frontends.
func (t *translation) addExternals(addrs []externalAddress, number uint16) {
	if t.rejected[external] {
		return
	}
	for i, addr := range addrs {
		if t.left[external] == 0 {
			t.excess[external] += len(addrs) - i
			return
		}
		before := len(t.entries)
		t.add(addr.Addr, number, addr.kind)
		t.left[external] -= len(t.entries) - before
	}
}

// reserve counts one more frontend and reports whether the Service may have it.
func (t *translation) reserve(f Frontend, kind Kind) bool {
	if why := t.node.reservedForAPIServer(f, t.service.Key()); why != "" {
		t.addProblem("%s does not answer: %s", request{kind: kind}.wording(f), why)
		return false
	}
	if kind == KindExternalIP || kind == KindLoadBalancer {
		return true // counted by addExternals
	}
	if t.rejected[inside] {
		return false
	}
	if t.left[inside] == 0 {
		t.excess[inside]++
		return false
	}
	t.left[inside]--
	return true
}

// reportExcess reports once how many frontends exceed the Service's limit.
func (t *translation) reportExcess() {
	for _, of := range []struct {
		resource
		what string
		most int
	}{
		{inside, "addresses and ports", t.node.Limits.serviceFrontends()},
		{external, "external addresses and ports", t.node.Limits.serviceExternal()},
	} {
		if n := t.excess[of.resource]; n > 0 {
			t.problems = append(t.problems, fmt.Sprintf("Service %s: %d of its %s do not answer: one Service has at most %d of them (a part of --services-max)",
				t.service.Key(), n, of.what, of.most))
		}
	}
}
