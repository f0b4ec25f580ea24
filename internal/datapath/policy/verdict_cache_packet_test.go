package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

// cached reports whether a verdict cache covers the second packet of a connection: it is allowed without recreating
// the conntrack entry, which is deleted in between. Verdict caches expire, so it tries several times.
func cached(p *harness.Policy, t *testing.T, first, then harness.Run, tries int) bool {
	t.Helper()
	for range tries {
		p.ClearVerdicts(t)
		p.Allows(t, "the first", first)
		p.ClearConntrack(t)
		p.Allows(t, "the next", then)
		if len(p.Entries(t)) == 0 {
			return true
		}
	}
	return false
}

// A verdict cache covers what follows a SYN, a FIN or data in the same direction. SYN, FIN and RST themselves are
// always evaluated, and so is what follows a RST, which may be of no connection.
func TestPermitFollows(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.Rules}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery}))
		client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		there := func(flags byte) harness.Run {
			return harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, flags))
		}
		back := func(flags byte) harness.Run {
			return harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, flags))
		}
		for _, c := range []struct {
			name        string
			first, then harness.Run
			want        bool
		}{
			{"ACK after SYN", there(fixtures.TcpSYN), there(fixtures.TcpACK), true},
			{"data after SYN", there(fixtures.TcpSYN), there(fixtures.TcpACK | fixtures.TcpPSH), true},
			{"data after SYN ACK", back(fixtures.TcpSYN | fixtures.TcpACK), back(fixtures.TcpACK | fixtures.TcpPSH), true},
			{"data after data", there(fixtures.TcpACK | fixtures.TcpPSH), there(fixtures.TcpACK | fixtures.TcpPSH), true},
			{"ACK after FIN", there(fixtures.TcpFIN | fixtures.TcpACK), there(fixtures.TcpACK), true},
			{"ACK after FIN, back", back(fixtures.TcpFIN | fixtures.TcpACK), back(fixtures.TcpACK), true},
			{"SYN after SYN", there(fixtures.TcpSYN), there(fixtures.TcpSYN), false},
			{"FIN after data", there(fixtures.TcpACK), there(fixtures.TcpFIN | fixtures.TcpACK), false},
			{"the other direction", there(fixtures.TcpSYN), back(fixtures.TcpSYN | fixtures.TcpACK), false},
			{"data of the other direction", there(fixtures.TcpACK), back(fixtures.TcpACK), false},
			{"data after RST", there(fixtures.TcpRST | fixtures.TcpACK), there(fixtures.TcpACK), false},
			{"another port", there(fixtures.TcpSYN), harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 40001}.At(family), server, fixtures.TcpACK)), false},
		} {
			tries := 2
			if c.want {
				tries = 20
			}
			if got := cached(p, t, c.first, c.then, tries); got != c.want {
				t.Errorf("%s: cached %t, expected %t", c.name, got, c.want)
			}
		}

		// A verdict cache overrides no rule: changes apply at once.
		p.ClearVerdicts(t)
		p.Allows(t, "SYN", there(fixtures.TcpSYN))
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsEvery})
		p.Denies(t, "ACK, denied", there(fixtures.TcpACK), harness.NoIngress)
		p.ClearVerdicts(t)
	})
}

// The counts of a verdict cache are added to its own entry, also when another connection with the same addresses or
// ports replaces it.
func TestPermitCounts(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery})
		server := harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		there := func(port uint16, flags byte) harness.Run {
			return harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: port}.At(family), server, flags))
		}
		back := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, harness.End{Member: fixtures.PodB, Port: 40000}.At(family), fixtures.TcpFIN|fixtures.TcpACK))
		udp := harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 40000}.At(family), server))
		type who struct {
			port     uint16
			protocol uint8
		}
		counted := func(what string, want map[who][2]uint64) {
			t.Helper()
			got := map[who][2]uint64{}
			for _, s := range p.Entries(t) {
				got[who{s.Source.Port(), s.Protocol}] = s.Packets
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-expected +got):\n%s", what, diff)
			}
		}
		first, other := who{40000, fixtures.ProtoTCP}, who{40001, fixtures.ProtoTCP}
		p.Allows(t, "SYN", there(40000, fixtures.TcpSYN))
		for range 10 {
			p.Allows(t, "data", there(40000, fixtures.TcpACK))
		}
		p.Allows(t, "another connection", there(40001, fixtures.TcpSYN))
		counted("another connection", map[who][2]uint64{first: {11}, other: {1}})
		for range 3 {
			p.Allows(t, "its data", there(40001, fixtures.TcpACK))
		}
		p.Allows(t, "the first again", there(40000, fixtures.TcpACK))
		counted("the first again", map[who][2]uint64{first: {12}, other: {4}})
		p.Allows(t, "more data", there(40000, fixtures.TcpACK))
		p.Allows(t, "FIN", there(40000, fixtures.TcpFIN|fixtures.TcpACK))
		counted("FIN", map[who][2]uint64{first: {14}, other: {4}})
		p.Allows(t, "the last ACK", there(40000, fixtures.TcpACK))
		p.Allows(t, "FIN back", back)
		p.Allows(t, "UDP with the same ports", udp)
		counted("UDP", map[who][2]uint64{first: {15, 1}, other: {4}, {40000, fixtures.ProtoUDP}: {1}})
		p.ClearVerdicts(t)
	})
}

// Additions and deletions of identities apply at once.
func TestPolicyIdentitiesChange(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		port := uint16(40000)
		syn := func() harness.Run {
			port++ // a new connection
			return harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), harness.End{Member: fixtures.PodC, Port: port}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family), fixtures.TcpSYN))
		}
		block := fixtures.Prefix(map[int]string{4: "10.1.3.0/24", 6: "fd00:1:3::/64"}[family])
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80, harness.IdExternal: harness.PortsTCP80})
		p.Denies(t, "unknown identity", syn(), harness.NoIngress)
		p.Denies(t, "unknown identity, again", syn(), harness.NoIngress)
		p.Tables.Identities[fixtures.PodC.Addr(family)] = harness.IdB
		p.Sync(t)
		p.Allows(t, "a pod", syn())
		p.Tables.Identities[fixtures.PodC.Addr(family)] = harness.IdA2
		p.Sync(t)
		p.Denies(t, "another one", syn(), harness.NoIngress)
		p.Tables.Blocks[block] = harness.IdExternal
		p.Sync(t)
		p.Denies(t, "the pod still", syn(), harness.NoIngress)
		delete(p.Tables.Identities, fixtures.PodC.Addr(family))
		p.Sync(t)
		p.Allows(t, "of a block", syn())
		delete(p.Tables.Blocks, block)
		p.Sync(t)
		p.Denies(t, "unknown identity afterwards", syn(), harness.NoIngress)
	})
}
