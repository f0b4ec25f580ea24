package datapath_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// fuzzer checks what holds for every packet.
type fuzzer struct {
	*harness.Harness
	cfg     config.Datapath
	dropped map[string]uint64 // by program
}

func newFuzzer(tb testing.TB, cfg config.Datapath) *fuzzer {
	return &fuzzer{harness.New(tb, cfg), cfg, map[string]uint64{}}
}

// check must run in the test's network namespace. It returns the verdict, and false if the kernel does not accept the
// packet.
func (f *fuzzer) check(in harness.Run) (v harness.Verdict, ran bool, err error) {
	before := bytes.Clone(in.In)
	got, err := f.Run(in)
	if err != nil {
		// The kernel requires a whole Ethernet header, data after it, and the IP header that it announces.
		if fixtures.ShortForKernel(in.In) {
			return 0, false, nil
		}
		return 0, false, err
	}
	switch got.Verdict {
	case harness.VerdictNext:
	case harness.VerdictDrop:
		f.dropped[in.Program]++
	case harness.VerdictRedirect:
		if in.Program != bpf.ProgFromPod && in.Program != bpf.ProgFromWire {
			return 0, false, fmt.Errorf("%s redirects", in.Program)
		}
		if !f.cfg.EBPFRouting {
			return 0, false, fmt.Errorf("%s redirects with kernel routing", in.Program)
		}
		return got.Verdict, true, checkRedirected(before, got.Out)
	default:
		return 0, false, fmt.Errorf("%s", got.Verdict)
	}
	if in.Program == bpf.ProgToMacvlan && len(before) == len(got.Out) {
		copy(before[6:12], got.Out[6:12]) // frames to the node hide their source MAC
	}
	if !bytes.Equal(before, got.Out) {
		return 0, false, fmt.Errorf("packet is not redirected, but changed to\n%s", fixtures.Layers(got.Out))
	}
	if got.Mark != in.Mark {
		return 0, false, fmt.Errorf("packet is not redirected, but its mark is now %#x", got.Mark)
	}
	return got.Verdict, true, nil
}

// checkRedirected allows a redirected packet new MACs, a TTL lower by one and the matching checksum, and nothing
// else.
func checkRedirected(before, after []byte) error {
	if len(before) != len(after) {
		return fmt.Errorf("packet has %d bytes, had %d", len(after), len(before))
	}
	want := bytes.Clone(before)
	copy(want, after[:12])
	switch uint16(before[12])<<8 | uint16(before[13]) {
	case fixtures.EtherIPv4:
		want[fixtures.EthLen+8]--
		copy(want[fixtures.EthLen+10:], after[fixtures.EthLen+10:fixtures.EthLen+12])
		header := func(b []byte) uint16 { return fixtures.Checksum(b[fixtures.EthLen : fixtures.EthLen+fixtures.Ipv4Len]) }
		if header(before) != header(after) {
			return fmt.Errorf("checksum over the header was %04x and is %04x\n%s", header(before), header(after), fixtures.Layers(after))
		}
	case fixtures.EtherIPv6:
		want[fixtures.EthLen+7]--
	default:
		return fmt.Errorf("packet that is not IP is redirected")
	}
	if !bytes.Equal(want, after) {
		return fmt.Errorf("redirecting changed more than MACs and TTL:\n%s", fixtures.Layers(after))
	}
	return nil
}

// checkCounters compares the counters of all programs with the drops so far.
func (f *fuzzer) checkCounters(tb testing.TB) error {
	counted := map[string]uint64{}
	for _, d := range f.Counters(tb) {
		counted[d.Program] += d.Packets
	}
	for _, program := range bpf.ProgramNames {
		if counted[program] != f.dropped[program] {
			return fmt.Errorf("%s dropped %d packets and counted %d", program, f.dropped[program], counted[program])
		}
	}
	return nil
}

// randomPacket is a plausible packet with some corrupted bytes. It depends on r only.
func randomPacket(r *rand.Rand) []byte {
	cast := []fixtures.Member{fixtures.PodA, fixtures.PodA2, fixtures.NoPod, fixtures.PodB, fixtures.PodC, fixtures.PodFar, fixtures.NodeA, fixtures.NodeB, fixtures.External,
		{V4: fixtures.Addr("224.0.0.1"), V6: fixtures.Addr("ff02::1")}, {V4: fixtures.Addr("0.0.0.0"), V6: fixtures.Addr("::")}, {V4: fixtures.Addr("169.254.1.1"), V6: fixtures.Addr("fe80::1")}}
	family := 4 + 2*r.IntN(2)
	src := fixtures.PodA
	if r.IntN(3) == 0 {
		src = cast[r.IntN(len(cast))]
	}
	p := fixtures.FromPod().Ip(src.Addr(family), cast[r.IntN(len(cast))].Addr(family))
	if r.IntN(4) == 0 {
		p = p.Ttl(uint8(r.IntN(4)))
	}
	if family == 4 && r.IntN(6) == 0 {
		p = p.IpOptions(make([]byte, 4*(1+r.IntN(10)))...)
	}
	for family == 6 && r.IntN(4) == 0 && len(p.Extensions) < 3 {
		p = p.Extend([]uint8{fixtures.ProtoHopByHop, fixtures.ProtoRouting, fixtures.ProtoDstOptions}[r.IntN(3)])
	}
	switch r.IntN(4) {
	case 0:
		p = p.Tcp(uint16(r.Uint32()), 80)
	case 1:
		p = p.Udp(uint16(r.Uint32()), 53)
	case 2:
		p = p.Echo()
	default:
		p = p.Raw(uint8(r.Uint32()), nil)
	}
	p = p.Payload(string(make([]byte, r.IntN(64))))
	if r.IntN(20) == 0 {
		p = p.Sized(fixtures.RemoteMTU - 8 + r.IntN(16))
	}
	if r.IntN(6) == 0 {
		p = p.Fragment(uint16(8*r.IntN(100)), r.IntN(2) == 0)
	}
	b := p.Bytes()
	if r.IntN(2) == 0 { // corrupt bytes, mostly of a header
		for range 1 + r.IntN(4) {
			b[r.IntN(min(len(b), 64))] = byte(r.Uint32())
		}
	}
	if r.IntN(10) == 0 {
		b = b[:fixtures.EthLen+1+r.IntN(len(b)-fixtures.EthLen)]
	}
	if r.IntN(10) == 0 {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

// TestRandomPackets is FuzzPrograms with a fixed seed.
func TestRandomPackets(t *testing.T) {
	const packets, chunk = 6000, 100
	seen := map[string]int{}
	for _, cfg := range fixtures.EveryConfig() {
		f := newFuzzer(t, cfg)
		r := testenv.Rand(t)
		for i := 0; i < packets; i += chunk {
			var err error
			f.Netns.Do(func() { err = f.randomChunk(r, chunk, seen) })
			if err == nil {
				err = f.checkCounters(t)
			}
			if err != nil {
				t.Fatalf("%s, packets %d to %d: %v", fixtures.CfgName(cfg), i, i+chunk, err)
			}
		}
	}
	t.Logf("verdicts: %v", seen)
	for _, want := range []string{"from_pod next", "from_pod drop", "from_pod redirect", "to_pod next", "to_pod drop", "from_wire next", "from_wire redirect", "to_wire next", "to_wire drop"} {
		if seen[want] < 100 {
			t.Errorf("only %d times %q: the packets cover too little", seen[want], want)
		}
	}
}

func (f *fuzzer) randomChunk(r *rand.Rand, packets int, seen map[string]int) error {
	for range packets {
		in := harness.Run{In: randomPacket(r), Device: "blpoda"}
		if r.IntN(4) == 0 {
			in.Mark = r.Uint32()
		}
		if r.IntN(8) == 0 {
			in.GsoSize = uint32(1 + r.IntN(2*fixtures.RemoteMTU))
		}
		for _, program := range harness.FramePrograms() {
			in.Program = program
			v, ran, err := f.check(in)
			if err != nil {
				return fmt.Errorf("%s: %w\n%s% x", program, err, fixtures.Layers(in.In), in.In)
			}
			if ran {
				seen[program+" "+v.String()]++
			}
		}
	}
	return nil
}

// FuzzPrograms runs arbitrary bytes through all programs in all configurations.
func FuzzPrograms(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 64 {
		f.Add(randomPacket(r), uint32(0), uint32(0))
	}
	f.Add(fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Tcp(1, 2).Sized(3000).Bytes(), uint32(0), uint32(1360))
	f.Add(fixtures.ToWire().Ipv4(fixtures.PodA.V4, fixtures.External.V4).Udp(1, 2).Bytes(), uint32(1), uint32(0))
	var fuzzers []*fuzzer
	for _, cfg := range fixtures.EveryConfig() {
		fuzzers = append(fuzzers, newFuzzer(f, cfg))
	}
	f.Fuzz(func(t *testing.T, packet []byte, mark, gsoSize uint32) {
		if len(packet) > 3000 { // more does not fit into the linear part of the kernel's test packet
			return
		}
		for _, z := range fuzzers {
			for _, program := range harness.FramePrograms() {
				in := harness.Run{Program: program, In: packet, Device: "blpoda", Mark: mark, GsoSize: gsoSize}
				var err error
				z.Netns.Do(func() { _, _, err = z.check(in) })
				if err == nil {
					err = z.checkCounters(t)
				}
				if err != nil {
					t.Fatalf("%s, %s: %v\n%s", fixtures.CfgName(z.cfg), program, err, fixtures.Layers(packet))
				}
			}
		}
	})
}
