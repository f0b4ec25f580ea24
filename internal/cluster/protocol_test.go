package cluster

import "testing"

// Names distinguish protocols in metrics: two protocols of one name would be a duplicate series, which fails the
// scrape.
func TestProtocolNames(t *testing.T) {
	seen := map[string]Protocol{}
	for n := range 256 {
		p := Protocol(n)
		if other, taken := seen[p.String()]; taken {
			t.Errorf("%d and %d are both %q", other, p, p)
		}
		seen[p.String()] = p
	}
	for _, p := range []Protocol{ICMP, TCP, UDP, ICMPv6, SCTP} {
		if got, ok := ParseProtocol(p.String()); !ok || got != p {
			t.Errorf("%q is read as %d (%t)", p, got, ok)
		}
	}
	if p, ok := ParseProtocol("icmpV6"); !ok || p != ICMPv6 {
		t.Errorf("icmpV6 is read as %d (%t)", p, ok)
	}
	for _, text := range []string{"", "6", "IP"} {
		if p, ok := ParseProtocol(text); ok {
			t.Errorf("%q is read as %d", text, p)
		}
	}
}
