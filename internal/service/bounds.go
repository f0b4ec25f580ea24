package service

import (
	"fmt"
	"net/netip"
	"slices"
)

// takeExternals finds the external addresses at which the Service may answer, load balancers' first, and says once of each kind which one of
// the others it may not have, and why.
func (t *translation) takeExternals() {
	s := t.service
	t.externals = t.externals[:0]
	t.takeExternal(s.LoadBalancerIPs, KindLoadBalancer, func(netip.Addr) bool { return false })
	t.takeExternal(s.ExternalIPs, KindExternalIP, func(a netip.Addr) bool { return slices.Contains(s.LoadBalancerIPs, a) })
}

// takeExternal takes the addresses of one kind; those that the Service has anyway are left out.
func (t *translation) takeExternal(addrs []netip.Addr, kind Kind, has func(netip.Addr) bool) {
	refused, first, reason, local := 0, netip.Addr{}, "", false
	bound := len(t.externals) + t.node.Limits.serviceExternal()
	for _, addr := range addrs {
		if has(addr) || slices.Contains(t.service.ClusterIPs, addr) {
			continue
		}
		why, own := t.refuse(addr, kind)
		switch {
		case why != "" && refused == 0:
			refused, first, reason, local = 1, addr, why, own
		case why != "":
			refused++
		case len(t.externals) < bound:
			t.externals = append(t.externals, externalAddress{addr, kind})
		default:
			t.beyond[external] += len(t.service.Ports)
		}
	}
	if refused == 0 {
		return
	}
	text := fmt.Sprintf("Service %s: %s %s does not answer: %s", t.service.Key(), externalNames[kind], first, reason)
	if refused > 1 {
		text += fmt.Sprintf(" (and %d more of its addresses are refused)", refused-1)
	}
	if local {
		t.local = append(t.local, text)
	} else {
		t.problems = append(t.problems, text)
	}
}

// refuse says why the Service does not answer at an external address, and whether only this node has the reason.
func (t *translation) refuse(addr netip.Addr, kind Kind) (why string, local bool) {
	if why := t.node.refuse(addr, kind); why != "" {
		return why, false
	}
	if t.guard != nil {
		if why := t.guard.refuse(addr); why != "" {
			return why, false
		}
	}
	why = t.node.refuseOwn(addr)
	return why, true
}

var externalNames = map[Kind]string{KindExternalIP: "externalIP", KindLoadBalancer: "load balancer's address"}

// addExternals adds a port's frontends at external addresses, as many as the Service may have. Nothing is made of those beyond, not even one
// by one: a Service of 1,000 ports and 1,000 addresses asks for a million.
func (t *translation) addExternals(addrs []externalAddress, number uint16) {
	if t.refused[external] {
		return
	}
	for i, addr := range addrs {
		if t.left[external] == 0 {
			t.beyond[external] += len(addrs) - i
			return
		}
		before := len(t.entries)
		t.add(addr.Addr, number, addr.kind)
		t.left[external] -= len(t.entries) - before
	}
}

// mayTake tells whether the Service may have one more frontend, and takes note of it.
func (t *translation) mayTake(f Frontend, kind Kind) bool {
	if why := t.node.takesAPIServer(f, t.service.Key()); why != "" {
		t.complain("%s does not answer: %s", claim{kind: kind}.wording(f), why)
		return false
	}
	if kind == KindExternalIP || kind == KindLoadBalancer {
		return true // addExternals has counted it
	}
	if t.refused[inside] {
		return false
	}
	if t.left[inside] == 0 {
		t.beyond[inside]++
		return false
	}
	t.left[inside]--
	return true
}

// sayBeyond says once how many frontends the Service does without.
func (t *translation) sayBeyond() {
	for _, of := range []struct {
		resource
		what string
		most int
	}{
		{inside, "addresses and ports", t.node.Limits.serviceFrontends()},
		{external, "external addresses and ports", t.node.Limits.serviceExternal()},
	} {
		if n := t.beyond[of.resource]; n > 0 {
			t.problems = append(t.problems, fmt.Sprintf("Service %s: %d of its %s do not answer: one Service has at most %d of them (a part of --services-max)",
				t.service.Key(), n, of.what, of.most))
		}
	}
}
