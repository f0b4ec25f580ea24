package datapath

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/policy"
)

// unasked runs a packet that is allowed, and then another one of the same session, which is gone from the table meanwhile: it comes back
// with the other one unless that has a permit. Permits end with the time, the sooner the slower the machine, so some are tried.
func (p *policyRig) unasked(t *testing.T, first, then run, tries int) bool {
	t.Helper()
	for range tries {
		p.forget(t)
		p.allows(t, "the first", first)
		p.forgetSessions(t)
		p.allows(t, "the next", then)
		if len(p.sessions(t)) == 0 {
			return true
		}
	}
	return false
}

// What follows a SYN or a FIN of a known session in the same direction is not asked about, as what follows data; these themselves always are,
// and so is what follows a RST, which may be of no session.
func TestPermitFollows(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	pinned(t, p.rig)
	eachFamily(t, func(t *testing.T, family int) {
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rules}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsEvery}))
		client, server := end{podB, 40000}.at(family), end{podA, 80}.at(family)
		there := func(flags byte) run { return wireBrings(segmentOf(fromWire(), client, server, flags)) }
		back := func(flags byte) run { return podSends(segmentOf(fromPod(), server, client, flags)) }
		for _, c := range []struct {
			name        string
			first, then run
			want        bool
		}{
			{"ACK after SYN", there(tcpSYN), there(tcpACK), true},
			{"data after SYN", there(tcpSYN), there(tcpACK | tcpPSH), true},
			{"data after SYN ACK", back(tcpSYN | tcpACK), back(tcpACK | tcpPSH), true},
			{"data after data", there(tcpACK | tcpPSH), there(tcpACK | tcpPSH), true},
			{"ACK after FIN", there(tcpFIN | tcpACK), there(tcpACK), true},
			{"ACK after FIN, back", back(tcpFIN | tcpACK), back(tcpACK), true},
			{"SYN after SYN", there(tcpSYN), there(tcpSYN), false},
			{"FIN after data", there(tcpACK), there(tcpFIN | tcpACK), false},
			{"the other direction", there(tcpSYN), back(tcpSYN | tcpACK), false},
			{"data of the other direction", there(tcpACK), back(tcpACK), false},
			{"data after RST", there(tcpRST | tcpACK), there(tcpACK), false},
			{"another port", there(tcpSYN), wireBrings(segmentOf(fromWire(), end{podB, 40001}.at(family), server, tcpACK)), false},
		} {
			tries := 2
			if c.want {
				tries = 20
			}
			if got := p.unasked(t, c.first, c.then, tries); got != c.want {
				t.Errorf("%s: without a question %t, expected %t", c.name, got, c.want)
			}
		}

		// No rule is forgotten for a permit: what changes is asked about at once.
		p.forget(t)
		p.allows(t, "SYN", there(tcpSYN))
		p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsEvery})
		p.denies(t, "ACK, forbidden", there(tcpACK), noIngress)
		p.forget(t)
	})
}

// What a permit has let pass is added to its own session, also when one of others takes its place: of the same addresses, or with the
// same ports.
func TestPermitCounts(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	pinned(t, p.rig)
	eachFamily(t, func(t *testing.T, family int) {
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsEvery})
		server := end{podA, 80}.at(family)
		there := func(port uint16, flags byte) run {
			return wireBrings(segmentOf(fromWire(), end{podB, port}.at(family), server, flags))
		}
		back := podSends(segmentOf(fromPod(), server, end{podB, 40000}.at(family), tcpFIN|tcpACK))
		udp := wireBrings(datagram(fromWire(), end{podB, 40000}.at(family), server))
		type who struct {
			port     uint16
			protocol uint8
		}
		counted := func(what string, want map[who][2]uint64) {
			t.Helper()
			got := map[who][2]uint64{}
			for _, s := range p.sessions(t) {
				got[who{s.Source.Port(), s.Protocol}] = s.Packets
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-expected +got):\n%s", what, diff)
			}
		}
		first, other := who{40000, protoTCP}, who{40001, protoTCP}
		p.allows(t, "SYN", there(40000, tcpSYN))
		for range 10 {
			p.allows(t, "data", there(40000, tcpACK))
		}
		p.allows(t, "another connection", there(40001, tcpSYN))
		counted("another connection", map[who][2]uint64{first: {11}, other: {1}})
		for range 3 {
			p.allows(t, "its data", there(40001, tcpACK))
		}
		p.allows(t, "the first again", there(40000, tcpACK))
		counted("the first again", map[who][2]uint64{first: {12}, other: {4}})
		p.allows(t, "more data", there(40000, tcpACK))
		p.allows(t, "FIN", there(40000, tcpFIN|tcpACK))
		counted("FIN", map[who][2]uint64{first: {14}, other: {4}})
		p.allows(t, "the last ACK", there(40000, tcpACK))
		p.allows(t, "FIN back", back)
		p.allows(t, "UDP with the same ports", udp)
		counted("UDP", map[who][2]uint64{first: {15, 1}, other: {4}, {40000, protoUDP}: {1}})
		p.forget(t)
	})
}

// Who is behind an address is remembered, and no longer than the tables say it: what is added counts at once, as what is gone.
func TestPolicyRemembersIdentities(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	pinned(t, p.rig)
	eachFamily(t, func(t *testing.T, family int) {
		port := uint16(40000)
		syn := func() run {
			port++ // a session of its own
			return wireBrings(segmentOf(fromWire(), end{podC, port}.at(family), end{podA, 80}.at(family), tcpSYN))
		}
		block := prefix(map[int]string{4: "10.1.3.0/24", 6: "fd00:1:3::/64"}[family])
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80, idWorld: portsTCP80})
		p.denies(t, "nobody", syn(), noIngress)
		p.denies(t, "nobody, again", syn(), noIngress)
		p.tables.Identities[podC.addr(family)] = idB
		p.sync(t)
		p.allows(t, "a pod", syn())
		p.tables.Identities[podC.addr(family)] = idA2
		p.sync(t)
		p.denies(t, "another one", syn(), noIngress)
		p.tables.Blocks[block] = idWorld
		p.sync(t)
		p.denies(t, "the pod still", syn(), noIngress)
		delete(p.tables.Identities, podC.addr(family))
		p.sync(t)
		p.allows(t, "of a block", syn())
		delete(p.tables.Blocks, block)
		p.sync(t)
		p.denies(t, "nobody any more", syn(), noIngress)

		// What the agent has not told of is not asked about.
		key := addressOf(podC.addr(family))
		if err := p.d.objects.maps.Identities.Put(key, uint32(idB)); err != nil {
			t.Fatal(err)
		}
		p.denies(t, "whom the CPU remembers", syn(), noIngress)
		if err := p.d.objects.generation.advanceIdentities(); err != nil {
			t.Fatal(err)
		}
		p.allows(t, "whom it has to ask for", syn())
		if err := p.d.objects.maps.Identities.Delete(key); err != nil {
			t.Fatal(err)
		}
		// Without a number nobody is remembered.
		now := generationNow(t, p.d.objects, generationIdentities)
		if err := p.d.objects.maps.Generation.Put(generationIdentities, uint32(0)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			p.denies(t, "as the table says", syn(), noIngress)
		}
		if err := p.d.objects.maps.Identities.Put(key, uint32(idB)); err != nil {
			t.Fatal(err)
		}
		p.allows(t, "as the table says by now", syn())
		if err := p.d.objects.maps.Identities.Delete(key); err != nil {
			t.Fatal(err)
		}
		p.forget(t)
		if err := p.d.objects.maps.Generation.Put(generationIdentities, now+1); err != nil {
			t.Fatal(err)
		}
	})
}
