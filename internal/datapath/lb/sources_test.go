package lb

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// allowed looks up the trie as the datapath does.
func allowed(tb testing.TB, s *Services, name service.PortName, a string) bool {
	tb.Helper()
	var value uint8
	key := bpf.SourceKey{PrefixLen: 160, Service: bpf.HostOrder(s.ports[name].id), Address: bpf.AddressOf(netip.MustParseAddr(a))}
	return s.sources.m.Lookup(key, &value) == nil
}

func prefixes(all ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range all {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestServiceSources(t *testing.T) {
	s := openServices(t, config.Datapath{}).Services
	guarded := fixtures.PortNamed("guarded", fixtures.Addrs(t, "10.1.1.2:80"), "203.0.113.1:80")
	other := fixtures.PortNamed("other", fixtures.Addrs(t, "10.1.1.2:80"), "203.0.113.2:80")
	other.Entries[0].Sources = prefixes("198.51.100.0/24")
	for _, c := range []struct {
		name    string
		sources []netip.Prefix
		yes, no []string
	}{
		{"both families", prefixes("192.0.2.0/24", "2001:db8::/32"), []string{"192.0.2.7", "2001:db8::1"}, []string{"192.0.3.1", "198.51.100.1", "2001:db9::1"}},
		{"all of IPv4", prefixes("0.0.0.0/0"), []string{"192.0.2.7", "198.51.100.1"}, []string{"2001:db8::1", "::1"}},
		{"all of IPv6 is not IPv4", prefixes("::/0"), []string{"2001:db8::1", "::1", "fe80::1", "::fffe:c000:201", "::1:0:0:0"}, []string{"192.0.2.7", "255.255.255.255"}},
		{"host bits do not matter", prefixes("192.0.2.9/24", "192.0.2.0/24"), []string{"192.0.2.7"}, []string{"192.0.3.1"}},
		{"one address", prefixes("192.0.2.9/32"), []string{"192.0.2.9"}, []string{"192.0.2.8"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			guarded.Entries[0].Sources = c.sources
			if err := s.Apply([]service.Port{guarded, other}, nil); err != nil {
				t.Fatal(err)
			}
			for _, a := range c.yes {
				if !allowed(t, s, guarded.Name, a) {
					t.Errorf("%s is not allowed", a)
				}
			}
			for _, a := range c.no {
				if allowed(t, s, guarded.Name, a) {
					t.Errorf("%s is allowed", a)
				}
			}
			if !allowed(t, s, other.Name, "198.51.100.1") || allowed(t, s, other.Name, "192.0.2.7") {
				t.Error("the other Service's sources have changed")
			}
		})
	}
	guarded.Entries[0].Sources = nil
	if err := s.Apply([]service.Port{guarded}, []service.PortName{other.Name}); err != nil {
		t.Fatal(err)
	}
	later(t, s)
	if n, err := table.Count(s.sources.m); err != nil || n != 0 {
		t.Errorf("%d source ranges are left: %v", n, err)
	}
}
