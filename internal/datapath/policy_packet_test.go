package datapath

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// Identities of the cast, and the numbers of rules that the tests use.
const (
	idA     = policy.IdentityPod | 1
	idA2    = policy.IdentityPod | 2
	idB     = policy.IdentityPod | 3
	idWorld = policy.Identity(4)

	rules     = policy.Set(900)
	rulesOf2  = policy.Set(901)
	rulesHere = policy.Set(902)

	portsTCP80  = policy.Ports(1)  // TCP 80
	portsRange  = policy.Ports(2)  // TCP 8000-8007
	portsUDP    = policy.Ports(3)  // UDP, all ports
	portsEvery  = policy.Ports(4)  // every protocol
	portsSCTP   = policy.Ports(5)  // SCTP 80
	portsOf53   = policy.Ports(6)  // UDP 53
	portsOf8080 = policy.Ports(8)  // TCP, UDP and SCTP 8080
	theirs      = policy.Policy(7) // the NetworkPolicy that allows all of these
)

// The reasons why policies drop.
const (
	noIngress = uint32(bpfDropReasonDROP_INGRESS_POLICY)
	noEgress  = uint32(bpfDropReasonDROP_EGRESS_POLICY)
	isClosed  = uint32(bpfDropReasonDROP_POLICY_CLOSED)
	noPiece   = uint32(bpfDropReasonDROP_UNKNOWN_FRAGMENT)
)

// policyRig is a rig with policies: nobody is governed at first.
type policyRig struct {
	*rig
	tables policy.Tables
}

func newPolicyRig(tb testing.TB, cfg Config) *policyRig {
	tb.Helper()
	cfg.Policy = true
	var r *rig
	if cfg.Services {
		r = newServiceRig(tb, cfg)
	} else {
		r = newRig(tb, cfg)
	}
	p := &policyRig{rig: r, tables: policy.Tables{
		Pods: map[netip.Addr]policy.Sets{}, Policies: map[policy.Peer]policy.Ports{},
		Identities: map[netip.Addr]policy.Identity{},
		Blocks:     map[netip.Prefix]policy.Identity{prefix("203.0.113.0/24"): idWorld, prefix("2001:db8::/32"): idWorld},
		Ports: map[policy.PortPrefix]policy.Policy{
			{Ports: portsTCP80, Bits: 24, Protocol: protoTCP, Port: 80}:   theirs,
			{Ports: portsRange, Bits: 21, Protocol: protoTCP, Port: 8000}: theirs,
			{Ports: portsUDP, Bits: 8, Protocol: protoUDP}:                theirs,
			{Ports: portsEvery}: theirs,
			{Ports: portsOf8080, Bits: 24, Protocol: protoTCP, Port: 8080}:  theirs,
			{Ports: portsOf8080, Bits: 24, Protocol: protoUDP, Port: 8080}:  theirs,
			{Ports: portsOf8080, Bits: 24, Protocol: protoSCTP, Port: 8080}: theirs,
			{Ports: portsOf53, Bits: 24, Protocol: protoUDP, Port: 53}:      theirs,
			{Ports: portsSCTP, Bits: 24, Protocol: protoSCTP, Port: 80}:     theirs,
		},
	}}
	for m, id := range map[*member]policy.Identity{&podA: idA, &podA2: idA2, &podB: idB, &podT: idB, &nodeA: policy.IdentityNode} {
		p.tables.Identities[m.v4], p.tables.Identities[m.v6] = id, id
	}
	p.sync(tb)
	return p
}

func (p *policyRig) sync(tb testing.TB) {
	tb.Helper()
	t := p.tables
	t.Pods, t.Policies, t.Identities = maps.Clone(t.Pods), maps.Clone(t.Policies), maps.Clone(t.Identities)
	t.Blocks, t.Ports = maps.Clone(t.Blocks), maps.Clone(t.Ports)
	if _, err := p.d.Policies.Sync(&t); err != nil {
		tb.Fatal(err)
	}
}

// govern puts a pod under rules; what they allow follows by identity.
func (p *policyRig) govern(tb testing.TB, pod member, sets policy.Sets, allowed map[policy.Peer]policy.Ports) {
	tb.Helper()
	p.tables.Pods[pod.v4], p.tables.Pods[pod.v6] = sets, sets
	if allowed != nil {
		maps.DeleteFunc(p.tables.Policies, func(k policy.Peer, _ policy.Ports) bool { return k.Set == sets.Ingress || k.Set == sets.Egress })
		maps.Copy(p.tables.Policies, allowed)
	}
	p.sync(tb)
}

// ingress and egress put podA under rules in one direction.
func (p *policyRig) ingress(tb testing.TB, allowed map[policy.Identity]policy.Ports) {
	p.govern(tb, podA, policy.Sets{Ingress: rules}, inSet(rules, allowed))
}

func (p *policyRig) egress(tb testing.TB, allowed map[policy.Identity]policy.Ports) {
	p.govern(tb, podA, policy.Sets{Egress: rules}, inSet(rules, allowed))
}

func inSet(set policy.Set, allowed map[policy.Identity]policy.Ports) map[policy.Peer]policy.Ports {
	peers := map[policy.Peer]policy.Ports{}
	for id, ports := range allowed {
		peers[policy.Peer{Set: set, Identity: id}] = ports
	}
	return peers
}

// forget removes all sessions, as if others had pushed them out.
func (p *policyRig) forget(tb testing.TB) {
	tb.Helper()
	p.forgetSessions(tb)
	if err := p.d.Policies.generation.advance(); err != nil { // and permits go with the decisions
		tb.Fatal(err)
	}
}

// forgetSessions removes them and leaves permits alone.
func (p *policyRig) forgetSessions(tb testing.TB) {
	tb.Helper()
	var keys []bpfTuple
	if err := readAll(p.d.objects.Sessions, func(k *bpfTuple, _ *bpfSession) { keys = append(keys, *k) }); err != nil {
		tb.Fatal(err)
	}
	for _, k := range keys {
		if err := p.d.objects.Sessions.Delete(k); err != nil {
			tb.Fatal(err)
		}
	}
}

// forgetFragments removes what is remembered of packets in pieces.
func (p *policyRig) forgetFragments(tb testing.TB) {
	tb.Helper()
	var keys []bpfFragmentKey
	if err := readAll(p.d.objects.Fragments, func(k *bpfFragmentKey, _ *bpfFragmentPorts) { keys = append(keys, *k) }); err != nil {
		tb.Fatal(err)
	}
	for _, k := range keys {
		if err := p.d.objects.Fragments.Delete(k); err != nil {
			tb.Fatal(err)
		}
	}
}

// sessions gives the table.
func (p *policyRig) sessions(tb testing.TB) []Session {
	tb.Helper()
	all, err := p.d.Sessions.All()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// allows and denies run one packet; a drop must be counted under its reason, and nothing else may be.
func (p *policyRig) allows(t *testing.T, what string, in run) {
	t.Helper()
	p.expect(t, what, in, 0)
}

func (p *policyRig) denies(t *testing.T, what string, in run, reason uint32) {
	t.Helper()
	p.expect(t, what, in, reason)
}

func (p *policyRig) expect(t *testing.T, what string, in run, reason uint32) {
	t.Helper()
	before := p.counters(t)
	var got outcome
	var err error
	p.stage.do(func() { got, err = p.run(in) })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if dropped := got.verdict == verdictDrop; dropped != (reason != 0) {
		t.Errorf("%s: verdict %s, counters %v\n%s", what, got.verdict, p.counters(t), layers(in.in))
	}
	for key, after := range p.counters(t) {
		by := after.Packets - before[key].Packets
		if expected := key == in.program+" "+DropReason(reason).String() && reason != 0; by != 0 && !expected {
			t.Errorf("%s: counted as %s", what, key)
		} else if expected && by != 1 {
			t.Errorf("%s: %d packets are counted as %s", what, by, key)
		}
	}
}

// end is one end of a connection in these tests: whose, and its port.
type end struct {
	member
	port uint16
}

// at gives the ends' addresses of a family.
func (e end) at(family int) netip.AddrPort { return netip.AddrPortFrom(e.addr(family), e.port) }

// transports are the ways to talk: what opens, and what goes on in the middle.
func segmentOf(frame packet, from, to netip.AddrPort, flags byte) packet {
	return frame.ip(from.Addr(), to.Addr()).tcp(from.Port(), to.Port()).segment(flags, 1, 1).payload("hello")
}

func datagram(frame packet, from, to netip.AddrPort) packet {
	return frame.ip(from.Addr(), to.Addr()).udp(from.Port(), to.Port()).payload("hello!")
}

func sctp(frame packet, from, to netip.AddrPort) packet {
	h := make([]byte, 12)
	binary.BigEndian.PutUint16(h, from.Port())
	binary.BigEndian.PutUint16(h[2:], to.Port())
	return frame.ip(from.Addr(), to.Addr()).raw(protoSCTP, h).payload("chunk")
}

// echoOf is a request or a reply with an identifier.
func echoOf(frame packet, from, to netip.Addr, id uint16, reply bool) packet {
	p := frame.ip(from, to).echo()
	p.transport = append([]byte{}, p.transport...)
	if reply && p.is4() {
		p.transport[0] = 0
	} else if reply {
		p.transport[0] = 129
	}
	binary.BigEndian.PutUint16(p.transport[4:], id)
	return p.payload("ping")
}

func pod2Sends(p packet) run {
	return run{program: bpfProgFromPod, device: "blpoda2", in: p.macs(podA2.mac, podA2.gateway).bytes()}
}

func eachFamily(t *testing.T, f func(t *testing.T, family int)) {
	for _, family := range families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) { f(t, family) })
	}
}

// Who may open what to a pod: by who asks, protocol and port; the first entry about somebody is the whole answer.
func TestPolicyIngress(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		from := func(who member, to uint16) run {
			return wireBrings(segmentOf(fromWire(), end{who, 40000}.at(family), end{podA, to}.at(family), tcpSYN))
		}
		udp := func(who member, to uint16) run {
			return wireBrings(datagram(fromWire(), end{who, 40000}.at(family), end{podA, to}.at(family)))
		}
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.allows(t, "the port", from(podB, 80))
		p.denies(t, "another port", from(podB, 81), noIngress)
		p.denies(t, "another protocol", udp(podB, 80), noIngress)
		p.denies(t, "another pod", from(podC, 80), noIngress)
		p.denies(t, "the world", from(world, 80), noIngress)
		p.denies(t, "another node", from(nodeB, 80), noIngress)

		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsRange, idWorld: portsUDP})
		for port := uint16(7998); port < 8010; port++ {
			if port >= 8000 && port < 8008 {
				p.allows(t, fmt.Sprint("port ", port), from(podB, port))
			} else {
				p.denies(t, fmt.Sprint("port ", port), from(podB, port), noIngress)
			}
		}
		p.allows(t, "any port of a protocol", udp(world, 9))
		p.denies(t, "another protocol from there", from(world, 9), noIngress)

		p.ingress(t, map[policy.Identity]policy.Ports{policy.IdentityPod: portsEvery, idB: 0})
		p.denies(t, "nothing for this one, before what all pods may", from(podB, 80), noIngress)
		p.denies(t, "not a pod", from(world, 80), noIngress)
		p.ingress(t, map[policy.Identity]policy.Ports{policy.IdentityUnknown: portsEvery})
		p.allows(t, "everybody", from(world, 80))
		p.allows(t, "everybody who is a pod", from(podB, 80))
		p.allows(t, "everybody whom nobody knows", from(nodeB, 80))
	})
}

// Whom a pod may open something to, wherever that is.
func TestPolicyEgress(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		to := func(whom member, port uint16) run {
			return podSends(segmentOf(fromPod(), end{podA, 40000}.at(family), end{whom, port}.at(family), tcpSYN))
		}
		p.egress(t, map[policy.Identity]policy.Ports{idB: portsTCP80, idA2: portsTCP80, idWorld: portsEvery})
		for name, whom := range map[string]member{"a pod of another node": podB, "a pod behind a tunnel": podT, "a pod here": podA2} {
			p.allows(t, name, to(whom, 80))
			p.denies(t, name+", another port", to(whom, 443), noEgress)
		}
		p.allows(t, "the world", to(world, 443))
		p.denies(t, "a pod without an entry", to(podC, 80), noEgress)
		p.denies(t, "another node", to(nodeB, 80), noEgress)
		p.denies(t, "an address that no pod has", to(ghost, 80), noEgress)
		p.allows(t, "its own node", to(nodeA, 22))
		p.allows(t, "another pod's packets", pod2Sends(segmentOf(eth(podA2.mac, podA2.gateway), end{podA2, 40000}.at(family), end{podC, 80}.at(family), tcpSYN)))
	})
}

// Answers need no rule, in either direction, and nothing that only looks like one gets in.
func TestPolicyAnswers(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		pod, peer := end{podA, 40000}.at(family), end{podB, 53}.at(family)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsEvery}))
		asks, answer := podSends(datagram(fromPod(), pod, peer)), wireBrings(datagram(fromWire(), peer, pod))
		p.denies(t, "an answer that nobody has asked for", answer, noIngress)
		p.allows(t, "the question", asks)
		p.allows(t, "its answer", answer)
		p.allows(t, "another answer", answer)
		p.denies(t, "from another port", wireBrings(datagram(fromWire(), end{podB, 54}.at(family), pod)), noIngress)
		p.denies(t, "to another port", wireBrings(datagram(fromWire(), peer, end{podA, 40001}.at(family))), noIngress)
		p.denies(t, "from somebody else", wireBrings(datagram(fromWire(), end{podC, 53}.at(family), pod)), noIngress)

		peer = end{podB, 80}.at(family)
		p.denies(t, "TCP opened with the answer's ports", wireBrings(segmentOf(fromWire(), peer, pod, tcpSYN)), noIngress)
		p.allows(t, "SYN", podSends(segmentOf(fromPod(), pod, peer, tcpSYN)))
		p.allows(t, "SYN, ACK", wireBrings(segmentOf(fromWire(), peer, pod, tcpSYN|tcpACK)))
		p.allows(t, "ACK", podSends(segmentOf(fromPod(), pod, peer, tcpACK)))
		for range 3 {
			p.allows(t, "data", podSends(segmentOf(fromPod(), pod, peer, tcpACK|tcpPSH)))
			p.allows(t, "data back", wireBrings(segmentOf(fromWire(), peer, pod, tcpACK|tcpPSH)))
		}
		p.denies(t, "SYN back", wireBrings(segmentOf(fromWire(), peer, pod, tcpSYN)), noIngress)

		p.allows(t, "echo", podSends(echoOf(fromPod(), pod.Addr(), peer.Addr(), 5, false)))
		p.allows(t, "its reply", wireBrings(echoOf(fromWire(), peer.Addr(), pod.Addr(), 5, true)))
		p.denies(t, "another reply", wireBrings(echoOf(fromWire(), peer.Addr(), pod.Addr(), 6, true)), noIngress)
		p.denies(t, "echo back", wireBrings(echoOf(fromWire(), peer.Addr(), pod.Addr(), 5, false)), noIngress)
	})
}

// Both ends of a connection within the node are judged at once, and either may refuse.
func TestPolicyWithinNode(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		from, to := end{podA, 40000}.at(family), end{podA2, 80}.at(family)
		syn, answer := podSends(segmentOf(fromPod(), from, to, tcpSYN)), pod2Sends(segmentOf(fromPod(), to, from, tcpSYN|tcpACK))
		data := podSends(segmentOf(fromPod(), from, to, tcpACK))
		p.govern(t, podA, policy.Sets{Egress: rules}, inSet(rules, map[policy.Identity]policy.Ports{idA2: portsTCP80}))
		p.govern(t, podA2, policy.Sets{Ingress: rulesOf2, Egress: policy.Closed}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idA: 0}))
		p.denies(t, "the receiver", syn, noIngress)
		p.govern(t, podA2, policy.Sets{Ingress: rulesOf2, Egress: policy.Closed}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idA: portsTCP80}))
		p.allows(t, "both", syn)
		p.allows(t, "the answer", answer)
		p.allows(t, "data", data)
		p.denies(t, "what the closed end opens", pod2Sends(datagram(fromPod(), to, end{podA, 53}.at(family))), isClosed)
		if all := p.sessions(t); len(all) != 1+(family-4)/2 || all[len(all)-1].Egress != theirs || all[len(all)-1].Ingress != theirs {
			t.Errorf("sessions %+v", all)
		}
		p.egress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.denies(t, "the sender", data, noEgress)
		p.denies(t, "the sender's answer", pod2Sends(segmentOf(fromPod(), to, from, tcpACK)), noEgress)
	})
}

// What is no longer allowed stops with its next packet, whatever the permit said; what still is goes on.
func TestPolicyRevokes(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		client, server := end{podB, 40000}.at(family), end{podA, 80}.at(family)
		syn := wireBrings(segmentOf(fromWire(), client, server, tcpSYN))
		data := wireBrings(segmentOf(fromWire(), client, server, tcpACK))
		back := podSends(segmentOf(fromPod(), server, client, tcpACK))
		open := func() {
			t.Helper()
			for what, in := range map[string]run{"data": data, "data again": data, "back": back, "back again": back} {
				p.allows(t, what, in)
			}
		}
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.allows(t, "SYN", syn)
		open()
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80, idWorld: portsTCP80})
		open()
		p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
		for range 3 {
			p.denies(t, "data, forbidden", data, noIngress)
			p.denies(t, "data back, forbidden", back, noIngress)
		}
		p.denies(t, "SYN, forbidden", syn, noIngress)
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		open()

		// A connection that began when no policy was there: its server's port tells who has opened it.
		delete(p.tables.Pods, podA.v4)
		delete(p.tables.Pods, podA.v6)
		p.sync(t)
		p.forget(t)
		open()
		p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
		p.denies(t, "from before the policy", data, noIngress)
		p.denies(t, "from before the policy, back", back, noIngress)

		// UDP: what its receiver sends does not turn it round.
		client, server = end{podB, 40000}.at(family), end{podA, 53}.at(family)
		query := wireBrings(datagram(fromWire(), client, server))
		reply := podSends(datagram(fromPod(), server, client))
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsUDP})
		p.allows(t, "query", query)
		p.allows(t, "reply", reply)
		p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
		p.denies(t, "reply, forbidden", reply, noIngress)
		p.denies(t, "query, forbidden", query, noIngress)
	})
}

// A session that others have pushed out is asked about again: what is allowed goes on, what is not does not.
func TestPolicyAfterEviction(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		for _, c := range []struct {
			name           string
			client, server uint16
			guessed        bool
		}{{"a server's port", 40000, 80, true}, {"no server's port", 81, 80, false}} {
			client, server := end{podB, c.client}.at(family), end{podA, c.server}.at(family)
			data := wireBrings(segmentOf(fromWire(), client, server, tcpACK))
			back := podSends(segmentOf(fromPod(), server, client, tcpACK))
			last := podSends(segmentOf(fromPod(), server, client, tcpRST|tcpACK))
			allowed := map[policy.Identity]policy.Ports{idB: portsTCP80}
			p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, allowed))
			for what, in := range map[string]run{"data": data, "data back": back} {
				p.forget(t)
				p.allows(t, c.name+": "+what, in)
				p.allows(t, c.name+": the other direction of "+what, data)
				p.allows(t, c.name+": the other direction of "+what, back)
			}
			p.forget(t)
			p.allows(t, c.name+": a reset", last)
			if n := len(p.sessions(t)); n != 0 {
				t.Errorf("%s: %d sessions begin with a reset", c.name, n)
			}
			p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{}))
			p.forget(t)
			p.denies(t, c.name+": data, denied", data, noIngress)
			if c.guessed {
				p.denies(t, c.name+": data back, denied", back, noIngress)
			}
		}
		// Of UDP every packet opens.
		query := wireBrings(datagram(fromWire(), end{podB, 40000}.at(family), end{podA, 53}.at(family)))
		reply := podSends(datagram(fromPod(), end{podA, 53}.at(family), end{podB, 40000}.at(family)))
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsUDP}))
		p.forget(t)
		p.denies(t, "a reply to nothing", reply, noEgress)
		p.allows(t, "the next query", query)
		p.allows(t, "its reply", reply)
	})
}

// A pod of which it is not known what governs it reaches nobody and is reached by nobody but its own node.
func TestPolicyClosed(t *testing.T) {
	for _, routing := range []bool{true, false} {
		p := newPolicyRig(t, Config{EBPFRouting: routing})
		p.govern(t, podA, policy.Sets{Ingress: policy.Closed, Egress: policy.Closed}, nil)
		each(func(name string, family int, transport func(packet) packet) {
			to := func(whom member) run { return podSends(transport(fromPod().ip(podA.addr(family), whom.addr(family)))) }
			from := func(who member) run {
				return stackDelivers(transport(toPod().ip(who.addr(family), podA.addr(family))))
			}
			for whom, m := range map[string]member{"a pod here": podA2, "a pod elsewhere": podB, "the world": world, "another node": nodeB} {
				p.denies(t, name+" to "+whom, to(m), isClosed)
				p.denies(t, name+" from "+whom, forwarded(from(m)), isClosed)
			}
			p.denies(t, name+" from who only says to be its node", forwarded(from(nodeA)), isClosed)
			p.allows(t, name+" to its node", to(nodeA))
			itself := from(nodeB)
			itself.ingress = itself.device
			p.allows(t, name+" from itself, with another address", itself)
			p.allows(t, name+" from its node", from(nodeA))
		})
		discovery := fromPod().ipv6(podA.v6, addr("ff02::1:ff00:1")).ttl(255).icmp(135, 0)
		p.allows(t, "neighbour discovery", podSends(discovery))
		p.allows(t, "neighbour discovery of its node", stackDelivers(toPod().ipv6(addr("fe80::1"), podA.v6).ttl(255).icmp(136, 0)))
	}
}

// forwarded is a packet that the stack has not made itself, but got from a device.
func forwarded(in run) run {
	in.ingress = "eth0"
	return in
}

// With kernel routing, and to pods that go through the stack, the sender is judged where the packet leaves it, and the receiver
// where the stack delivers it: one session serves both.
func TestPolicyThroughStack(t *testing.T) {
	for _, routing := range []bool{true, false} {
		p := newPolicyRig(t, Config{EBPFRouting: routing})
		if routing {
			p.throughStack(t, podA, true)
			p.throughStack(t, podA2, true)
		}
		eachFamily(t, func(t *testing.T, family int) {
			from, to := end{podA2, 40000}.at(family), end{podA, 80}.at(family)
			sends := func(flags byte) run { return pod2Sends(segmentOf(fromPod(), from, to, flags)) }
			gets := func(flags byte) run { return forwarded(stackDelivers(segmentOf(toPod(), from, to, flags))) }
			p.govern(t, podA2, policy.Sets{Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idA: portsTCP80}))
			p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
			p.allows(t, "SYN at its sender", sends(tcpSYN))
			p.denies(t, "SYN at its receiver", gets(tcpSYN), noIngress)
			p.ingress(t, map[policy.Identity]policy.Ports{idA2: portsTCP80})
			p.allows(t, "SYN at its sender, allowed", sends(tcpSYN))
			p.allows(t, "SYN at its receiver, allowed", gets(tcpSYN))
			p.allows(t, "its answer", podSends(segmentOf(fromPod(), to, from, tcpSYN|tcpACK)))
			for range 3 {
				p.allows(t, "data at its sender", sends(tcpACK))
				p.allows(t, "data at its receiver", gets(tcpACK))
			}
			p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
			for range 2 {
				p.allows(t, "data at its sender, whom nothing forbids it", sends(tcpACK))
				p.denies(t, "data at its receiver, forbidden", gets(tcpACK), noIngress)
			}
			// What leaves a pod here is counted there and not once more.
			if err := p.d.Policies.generation.advance(); err != nil {
				t.Fatal(err)
			}
			p.allows(t, "the permits' end", sends(tcpACK))
			for _, s := range p.sessions(t) {
				if s.Source == from && s.Packets[0] != 8 {
					t.Errorf("%d packets are counted, not 8", s.Packets[0])
				}
			}
		})
	}
}

// What the stack gets for its options is judged before, and counted once: where the stack delivers it, unless it was where it left a pod here.
func TestPolicyCountsOptionsOnce(t *testing.T) {
	for _, c := range []struct {
		name     string
		flows    FlowMode
		from     member
		governed bool // the sender, too
		send     func(packet) run
		frame    packet
	}{
		{"from the wire", FlowsOff, podB, false, wireBrings, fromWire()},
		{"from the wire, observed", FlowsAll, podB, false, wireBrings, fromWire()},
		{"from a pod here", FlowsOff, podA2, false, pod2Sends, fromPod()},
		{"from a pod here, observed", FlowsAll, podA2, false, pod2Sends, fromPod()},
		{"from a pod here that policies select", FlowsOff, podA2, true, pod2Sends, fromPod()},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPolicyRig(t, Config{EBPFRouting: true, Flows: c.flows})
			eachFamily(t, func(t *testing.T, family int) {
				p.ingress(t, map[policy.Identity]policy.Ports{idA2: portsUDP, idB: portsUDP})
				if c.governed {
					p.govern(t, podA2, policy.Sets{Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idA: portsUDP}))
				}
				from, to := end{c.from, 40000}.at(family), end{podA, 53}.at(family)
				with := func(frame packet) packet {
					frame = frame.ip(from.Addr(), to.Addr())
					if family == 4 {
						return frame.ipOptions(0x94, 4, 0, 0).udp(from.Port(), to.Port()) // router alert
					}
					return frame.extend(protoHopByHop).udp(from.Port(), to.Port())
				}
				const packets = 3
				for range packets {
					p.allows(t, "to the stack", c.send(with(c.frame)))
					p.allows(t, "from the stack", forwarded(stackDelivers(with(toPod()))))
				}
				all := p.sessions(t)
				if len(all) != 1 || all[0].Packets != [2]uint64{packets, 0} {
					t.Errorf("sessions %+v, expected one with %d packets", all, packets)
				}
				p.forget(t)
			})
		})
	}
}

// Later fragments go the way of the first; without it, only rules without ports can tell.
func TestPolicyFragments(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		pieces := func(frame packet, port uint16) (first, last packet) {
			whole := datagram(frame, end{podB, 40000}.at(family), end{podA, port}.at(family)).payload("sixteen bytes at least, and more")
			return whole.fragment(0, true), whole.fragment(16, false)
		}
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		first, last := pieces(fromWire(), 53)
		p.denies(t, "the first piece", wireBrings(first), noIngress)
		p.denies(t, "the last piece of what was denied", wireBrings(last), noIngress)
		p.forgetFragments(t)
		p.denies(t, "the last piece of what is unknown", wireBrings(last), noPiece)
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsUDP})
		p.allows(t, "an unknown piece of a protocol that is allowed whole", wireBrings(last))
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsOf53})
		p.forget(t)
		p.denies(t, "an unknown piece of a port that is allowed", wireBrings(last), noPiece)
		p.allows(t, "the first piece of a port that is allowed", wireBrings(first))
		p.allows(t, "the last piece of that", wireBrings(last))
		p.allows(t, "an answer in pieces", podSends(datagram(fromPod(), end{podA, 53}.at(family), end{podB, 40000}.at(family)).payload("sixteen bytes at least, and more").fragment(0, true)))
	})
}

// ICMP errors belong to what they quote; without that they are like any protocol without ports.
func TestPolicyErrors(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	hop := member{v4: addr("172.30.0.77"), v6: addr("fd00:172:30::77")}
	eachFamily(t, func(t *testing.T, family int) {
		kind, code := byte(3), byte(3)
		if family == 6 {
			kind, code = 1, 4
		}
		none := eth(MAC{}, MAC{})
		asked, other := end{podA, 40000}.at(family), end{podB, 53}.at(family)
		about := func(frame packet, who netip.Addr, quoted packet) packet {
			return quoting(frame, who, quoted.src, kind, code, 0, quoted, 500)
		}
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsOf53}))
		sent := datagram(none, asked, other)
		p.denies(t, "about what the pod may not send", wireBrings(about(fromWire(), hop.addr(family), datagram(none, asked, end{podB, 54}.at(family)))), noIngress)
		p.allows(t, "the packet", podSends(datagram(fromPod(), asked, other)))
		p.allows(t, "of its receiver", wireBrings(about(fromWire(), podB.addr(family), sent)))
		p.allows(t, "of a router", wireBrings(about(fromWire(), hop.addr(family), sent)))
		mine := about(fromWire(), hop.addr(family), datagram(none, end{podC, 40000}.at(family), other))
		mine.dst = podA.addr(family)
		p.denies(t, "about somebody else's packet", wireBrings(mine), noIngress)
		p.allows(t, "an answer", wireBrings(datagram(fromWire(), other, asked)))
		p.allows(t, "about the answer", podSends(about(fromPod(), podA.addr(family), datagram(none, other, asked))))
		p.denies(t, "about what nobody has sent", podSends(about(fromPod(), podA.addr(family), datagram(none, end{podC, 53}.at(family), asked))), noEgress)

		// A pod here does not speak for routers.
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsOf53})
		p.allows(t, "an answer's question", wireBrings(datagram(fromWire(), other, end{podA, 53}.at(family))))
		lie := about(fromPod(), podA2.addr(family), datagram(none, end{podA, 53}.at(family), other))
		p.denies(t, "of a pod that has not got it", pod2Sends(lie), noIngress)
	})
}

// Protocols without ports are allowed where every protocol is; SCTP has ports where TCP has them.
func TestPolicyProtocols(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		gre := wireBrings(fromWire().ip(podB.addr(family), podA.addr(family)).raw(47, make([]byte, 12)))
		back := podSends(fromPod().ip(podA.addr(family), podB.addr(family)).raw(47, make([]byte, 12)))
		ping := wireBrings(echoOf(fromWire(), podB.addr(family), podA.addr(family), 9, false))
		init := func(port uint16) run {
			return wireBrings(sctp(fromWire(), end{podB, 40000}.at(family), end{podA, port}.at(family)))
		}
		short := wireBrings(fromWire().ip(podB.addr(family), podA.addr(family)).raw(protoTCP, []byte{0, 1, 0, 80}))
		for _, ports := range []policy.Ports{portsTCP80, portsUDP} {
			p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: ports}))
			p.denies(t, "another protocol", gre, noIngress)
			p.denies(t, "echo", ping, noIngress)
			p.denies(t, "SCTP", init(80), noIngress)
			p.denies(t, "TCP that is cut off", short, noIngress)
		}
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsSCTP})
		p.allows(t, "SCTP, allowed", init(80))
		p.denies(t, "SCTP to another port", init(81), noIngress)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsEvery}))
		p.allows(t, "another protocol, allowed", gre)
		p.allows(t, "its answer", back)
		p.allows(t, "echo, allowed", ping)
		p.allows(t, "its reply", podSends(echoOf(fromPod(), podA.addr(family), podB.addr(family), 9, true)))
	})
}

// What a permit lets pass is counted by its session in the end: when another one takes its place, and with the connection's end.
func TestPolicyCounts(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		client, server := end{podB, 40000}.at(family), end{podA, 80}.at(family)
		syn := segmentOf(fromWire(), client, server, tcpSYN)
		data, back := segmentOf(fromWire(), client, server, tcpACK), segmentOf(fromPod(), server, client, tcpACK)
		p.allows(t, "SYN", wireBrings(syn))
		for range 100 {
			p.allows(t, "data", wireBrings(data))
			p.allows(t, "data back", podSends(back))
		}
		p.allows(t, "FIN", wireBrings(segmentOf(fromWire(), client, server, tcpFIN|tcpACK)))
		p.allows(t, "FIN back", podSends(segmentOf(fromPod(), server, client, tcpFIN|tcpACK)))
		all := p.sessions(t)
		s := all[len(all)-1]
		bytes := uint64(102 * len(data.bytes()))
		if s.Packets != [2]uint64{102, 101} || s.Bytes != [2]uint64{bytes, bytes - uint64(len(back.bytes()))} {
			t.Errorf("packets %d, bytes %d, expected 102 and 101, %d", s.Packets, s.Bytes, bytes)
		}
		if s.Source != client || s.Destination != server || s.State != ConnectionClosed || s.Ingress != theirs || s.Egress != 0 {
			t.Errorf("session %+v", s)
		}
		p.allows(t, "the next connection with these ports", wireBrings(syn))
		all = p.sessions(t)
		if s := all[len(all)-1]; s.Packets != [2]uint64{1, 0} || s.State == ConnectionClosed {
			t.Errorf("session %+v", s)
		}
	})
}

// Policies judge what goes through a tunnel as what comes from the wire.
func TestPolicyTunnel(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		p.egress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.allows(t, "out", podSends(segmentOf(fromPod(), end{podA, 40000}.at(family), end{podT, 80}.at(family), tcpSYN)))
		p.denies(t, "out, forbidden", podSends(segmentOf(fromPod(), end{podA, 40000}.at(family), end{podT6, 80}.at(family), tcpSYN)), noEgress)
	})
}
