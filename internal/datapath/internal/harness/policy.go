package harness

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Identities of the fixtures, and ids of rules.
const (
	IdA        = policy.IdentityPod | 1
	IdA2       = policy.IdentityPod | 2
	IdB        = policy.IdentityPod | 3
	IdExternal = policy.Identity(4)

	Rules     = policy.Set(900)
	RulesOf2  = policy.Set(901)
	RulesHere = policy.Set(902)

	PortsTCP80  = policy.Ports(1)  // TCP 80
	PortsRange  = policy.Ports(2)  // TCP 8000-8007
	PortsUDP    = policy.Ports(3)  // UDP, all ports
	PortsEvery  = policy.Ports(4)  // every protocol
	PortsSCTP   = policy.Ports(5)  // SCTP 80
	PortsOf53   = policy.Ports(6)  // UDP 53
	PortsOf8080 = policy.Ports(8)  // TCP, UDP and SCTP 8080
	ThePolicy   = policy.Policy(7) // the NetworkPolicy that allows all of these
)

// The reasons why policies drop.
const (
	NoIngress = uint32(bpf.DropReasonDROP_INGRESS_POLICY)
	NoEgress  = uint32(bpf.DropReasonDROP_EGRESS_POLICY)
	InClosed  = uint32(bpf.DropReasonDROP_INGRESS_POLICY_PENDING)
	OutClosed = uint32(bpf.DropReasonDROP_EGRESS_POLICY_PENDING)
	NoPiece   = uint32(bpf.DropReasonDROP_FRAGMENT_WITHOUT_FIRST)
)

// Policy is a harness with policies: no pod is isolated at first.
type Policy struct {
	*Harness
	Tables policy.Tables
}

func NewPolicy(tb testing.TB, cfg config.Datapath) *Policy {
	tb.Helper()
	cfg.Policy = true
	var r *Harness
	if cfg.Services {
		r = NewServices(tb, cfg)
	} else {
		r = New(tb, cfg)
	}
	p := &Policy{Harness: r, Tables: policy.Tables{
		Pods: map[netip.Addr]policy.Sets{}, Policies: map[policy.Peer]policy.Ports{},
		Identities: map[netip.Addr]policy.Identity{},
		Blocks:     map[netip.Prefix]policy.Identity{fixtures.Prefix("203.0.113.0/24"): IdExternal, fixtures.Prefix("2001:db8::/32"): IdExternal},
		Ports: map[policy.PortPrefix]policy.Policy{
			{Ports: PortsTCP80, Bits: 24, Protocol: fixtures.ProtoTCP, Port: 80}:   ThePolicy,
			{Ports: PortsRange, Bits: 21, Protocol: fixtures.ProtoTCP, Port: 8000}: ThePolicy,
			{Ports: PortsUDP, Bits: 8, Protocol: fixtures.ProtoUDP}:                ThePolicy,
			{Ports: PortsEvery}: ThePolicy,
			{Ports: PortsOf8080, Bits: 24, Protocol: fixtures.ProtoTCP, Port: 8080}:  ThePolicy,
			{Ports: PortsOf8080, Bits: 24, Protocol: fixtures.ProtoUDP, Port: 8080}:  ThePolicy,
			{Ports: PortsOf8080, Bits: 24, Protocol: fixtures.ProtoSCTP, Port: 8080}: ThePolicy,
			{Ports: PortsOf53, Bits: 24, Protocol: fixtures.ProtoUDP, Port: 53}:      ThePolicy,
			{Ports: PortsSCTP, Bits: 24, Protocol: fixtures.ProtoSCTP, Port: 80}:     ThePolicy,
		},
	}}
	for m, id := range map[*fixtures.Member]policy.Identity{&fixtures.PodA: IdA, &fixtures.PodA2: IdA2, &fixtures.PodB: IdB, &fixtures.PodT: IdB, &fixtures.NodeA: policy.IdentityNode} {
		p.Tables.Identities[m.V4], p.Tables.Identities[m.V6] = id, id
	}
	p.Sync(tb)
	return p
}

func (p *Policy) Sync(tb testing.TB) {
	tb.Helper()
	t := p.Tables
	t.Pods, t.Policies, t.Identities = maps.Clone(t.Pods), maps.Clone(t.Policies), maps.Clone(t.Identities)
	t.Blocks, t.Ports = maps.Clone(t.Blocks), maps.Clone(t.Ports)
	if _, err := p.D.Policies.Sync(&t); err != nil {
		tb.Fatal(err)
	}
}

// Govern isolates a pod; allowed peers follow by identity.
func (p *Policy) Govern(tb testing.TB, pod fixtures.Member, sets policy.Sets, allowed map[policy.Peer]policy.Ports) {
	tb.Helper()
	p.Tables.Pods[pod.V4], p.Tables.Pods[pod.V6] = sets, sets
	if allowed != nil {
		maps.DeleteFunc(p.Tables.Policies, func(k policy.Peer, _ policy.Ports) bool { return k.Set == sets.Ingress || k.Set == sets.Egress })
		maps.Copy(p.Tables.Policies, allowed)
	}
	p.Sync(tb)
}

// Ingress and egress isolate PodA in one direction.
func (p *Policy) Ingress(tb testing.TB, allowed map[policy.Identity]policy.Ports) {
	p.Govern(tb, fixtures.PodA, policy.Sets{Ingress: Rules}, InSet(Rules, allowed))
}

func (p *Policy) Egress(tb testing.TB, allowed map[policy.Identity]policy.Ports) {
	p.Govern(tb, fixtures.PodA, policy.Sets{Egress: Rules}, InSet(Rules, allowed))
}

func InSet(set policy.Set, allowed map[policy.Identity]policy.Ports) map[policy.Peer]policy.Ports {
	peers := map[policy.Peer]policy.Ports{}
	for id, ports := range allowed {
		peers[policy.Peer{Set: set, Identity: id}] = ports
	}
	return peers
}

// ClearVerdicts removes all conntrack entries, as if evicted, and invalidates cached verdicts.
func (r *Harness) ClearVerdicts(tb testing.TB) {
	tb.Helper()
	r.ClearConntrack(tb)
	if err := r.D.Objects.Generation.Advance(); err != nil {
		tb.Fatal(err)
	}
}

// ClearConntrack removes conntrack entries and leaves cached verdicts.
func (r *Harness) ClearConntrack(tb testing.TB) {
	tb.Helper()
	if err := r.D.Conntrack.Flush(); err != nil {
		tb.Fatal(err)
	}
	var keys []bpf.Tuple
	if err := table.Read(r.D.Objects.Maps.Conntrack, func(k *bpf.Tuple, _ *bpf.CtEntry) { keys = append(keys, *k) }); err != nil {
		tb.Fatal(err)
	}
	for _, k := range keys {
		if err := r.D.Objects.Maps.Conntrack.Delete(k); err != nil {
			tb.Fatal(err)
		}
	}
}

// ClearFragments removes fragment state.
func (p *Policy) ClearFragments(tb testing.TB) {
	tb.Helper()
	if err := ClearMap(p.D.Objects.Maps.Fragments); err != nil {
		tb.Fatal(err)
	}
}

// Entries returns the conntrack entries, sorted by creation time.
func (p *Policy) Entries(tb testing.TB) []conntrack.Entry { return AllEntries(tb, p.D.Conntrack) }

// AllEntries returns entries sorted by creation time, including expired ones.
func AllEntries(tb testing.TB, s *conntrack.Table) []conntrack.Entry {
	tb.Helper()
	var all []conntrack.Entry
	if _, err := s.Expire(0, func(s conntrack.Entry) { all = append(all, s) }, nil); err != nil {
		tb.Fatal(err)
	}
	slices.SortFunc(all, func(a, b conntrack.Entry) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), a.Source.Compare(b.Source), a.Destination.Compare(b.Destination))
	})
	return all
}

// KeyOf returns the conntrack key of two ends.
func KeyOf(a, b netip.AddrPort, protocol uint8) bpf.Tuple {
	key, _ := bpf.ConntrackKey(bpf.TupleOf(a, b, protocol))
	return key
}

// Allows and denies run one packet; a drop must be counted under its reason, and nothing else may be.
func (p *Policy) Allows(t *testing.T, what string, in Run) {
	t.Helper()
	p.expect(t, what, in, 0)
}

func (p *Policy) Denies(t *testing.T, what string, in Run, reason uint32) {
	t.Helper()
	p.expect(t, what, in, reason)
}

func (p *Policy) expect(t *testing.T, what string, in Run, reason uint32) {
	t.Helper()
	before := p.Counters(t)
	var got Outcome
	var err error
	p.Netns.Do(func() { got, err = p.Run(in) })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if dropped := got.Verdict == VerdictDrop; dropped != (reason != 0) {
		t.Errorf("%s: verdict %s, counters %v\n%s", what, got.Verdict, p.Counters(t), fixtures.Layers(in.In))
	}
	for key, after := range p.Counters(t) {
		by := after.Packets - before[key].Packets
		if expected := key == in.Program+" "+flow.DropReason(reason).String() && reason != 0; by != 0 && !expected {
			t.Errorf("%s: counted as %s", what, key)
		} else if expected && by != 1 {
			t.Errorf("%s: %d packets are counted as %s", what, by, key)
		}
	}
}

// End is one end of a connection: its member and port.
type End struct {
	fixtures.Member
	Port uint16
}

// At gives the ends' addresses of a family.
func (e End) At(family int) netip.AddrPort { return netip.AddrPortFrom(e.Addr(family), e.Port) }

// transports are the ways to talk: what opens, and what goes on in the middle.
func SegmentOf(frame fixtures.Packet, from, to netip.AddrPort, flags byte) fixtures.Packet {
	return frame.Ip(from.Addr(), to.Addr()).Tcp(from.Port(), to.Port()).Segment(flags, 1, 1).Payload("hello")
}

func Datagram(frame fixtures.Packet, from, to netip.AddrPort) fixtures.Packet {
	return frame.Ip(from.Addr(), to.Addr()).Udp(from.Port(), to.Port()).Payload("hello!")
}

func Sctp(frame fixtures.Packet, from, to netip.AddrPort) fixtures.Packet {
	h := make([]byte, 12)
	binary.BigEndian.PutUint16(h, from.Port())
	binary.BigEndian.PutUint16(h[2:], to.Port())
	return frame.Ip(from.Addr(), to.Addr()).Raw(fixtures.ProtoSCTP, h).Payload("chunk")
}

// EchoOf is a request or a reply with an identifier.
func EchoOf(frame fixtures.Packet, from, to netip.Addr, id uint16, reply bool) fixtures.Packet {
	p := frame.Ip(from, to).Echo()
	p.Transport = append([]byte{}, p.Transport...)
	if reply && p.Is4() {
		p.Transport[0] = 0
	} else if reply {
		p.Transport[0] = 129
	}
	binary.BigEndian.PutUint16(p.Transport[4:], id)
	return p.Payload("ping")
}

func Pod2Sends(p fixtures.Packet) Run {
	return Run{Program: bpf.ProgFromPod, Device: "blpoda2", In: p.Macs(fixtures.PodA2.Mac, fixtures.PodA2.Gateway).Bytes()}
}

func EachFamily(t *testing.T, f func(t *testing.T, family int)) {
	for _, family := range fixtures.Families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) { f(t, family) })
	}
}

// The Service that pods use in these tests.
var FrontendOfPods = End{fixtures.ClusterIP, 80}
