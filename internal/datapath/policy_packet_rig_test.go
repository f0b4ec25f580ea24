package datapath

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	inClosed  = uint32(bpfDropReasonDROP_INGRESS_POLICY_PENDING)
	outClosed = uint32(bpfDropReasonDROP_EGRESS_POLICY_PENDING)
	noPiece   = uint32(bpfDropReasonDROP_FRAGMENT_WITHOUT_FIRST)
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
func (r *rig) forget(tb testing.TB) {
	tb.Helper()
	r.forgetSessions(tb)
	if err := r.d.objects.generation.advance(); err != nil { // and permits go with the decisions
		tb.Fatal(err)
	}
}

// forgetSessions removes them and leaves permits alone.
func (r *rig) forgetSessions(tb testing.TB) {
	tb.Helper()
	if err := r.d.Sessions.settleYoung(); err != nil {
		tb.Fatal(err)
	}
	var keys []bpfTuple
	if err := readAll(r.d.objects.maps.Conntrack, func(k *bpfTuple, _ *bpfCtEntry) { keys = append(keys, *k) }); err != nil {
		tb.Fatal(err)
	}
	for _, k := range keys {
		if err := r.d.objects.maps.Conntrack.Delete(k); err != nil {
			tb.Fatal(err)
		}
	}
}

// forgetFragments removes what is remembered of packets in pieces.
func (p *policyRig) forgetFragments(tb testing.TB) {
	tb.Helper()
	var keys []bpfFragmentKey
	if err := readAll(p.d.objects.maps.Fragments, func(k *bpfFragmentKey, _ *bpfFragment) { keys = append(keys, *k) }); err != nil {
		tb.Fatal(err)
	}
	for _, k := range keys {
		if err := p.d.objects.maps.Fragments.Delete(k); err != nil {
			tb.Fatal(err)
		}
	}
}

// sessions gives the table, sorted by when the sessions were opened.
func (p *policyRig) sessions(tb testing.TB) []Session { return allSessions(tb, p.d.Sessions) }

// allSessions gives a table, sorted by when the sessions were opened: at the beginning of time none has expired.
func allSessions(tb testing.TB, s *Sessions) []Session {
	tb.Helper()
	var all []Session
	if _, err := s.Expire(0, func(s Session) { all = append(all, s) }, nil); err != nil {
		tb.Fatal(err)
	}
	slices.SortFunc(all, func(a, b Session) int {
		return cmp.Or(cmp.Compare(a.Opened, b.Opened), a.Source.Compare(b.Source), a.Destination.Compare(b.Destination))
	})
	return all
}

// sessionKeyOf gives the key of the session of two ends.
func sessionKeyOf(a, b netip.AddrPort, protocol uint8) bpfTuple {
	key, _ := sessionKey(bpfTuple{
		Source: addressOf(a.Addr()), Destination: addressOf(b.Addr()),
		SourcePort: networkOrder(a.Port()), DestinationPort: networkOrder(b.Port()), Protocol: protocol,
	})
	return key
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
