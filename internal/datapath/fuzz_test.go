package datapath

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// fuzzer checks what must hold for any packet at all.
type fuzzer struct {
	*rig
	cfg     Config
	dropped map[string]uint64 // by program
}

func newFuzzer(tb testing.TB, cfg Config) *fuzzer {
	return &fuzzer{newRig(tb, cfg), cfg, map[string]uint64{}}
}

// check must be called on the stage. It gives the verdict, and false where the kernel does not take the packet.
func (f *fuzzer) check(in run) (v verdict, ran bool, err error) {
	before := bytes.Clone(in.in)
	got, err := f.run(in)
	if err != nil {
		// The kernel wants a whole Ethernet header, something behind it, and the IP header it announces.
		if shortForKernel(in.in) {
			return 0, false, nil
		}
		return 0, false, err
	}
	switch got.verdict {
	case verdictNext:
	case verdictDrop:
		f.dropped[in.program]++
	case verdictRedirect:
		if in.program != bpfProgFromPod && in.program != bpfProgFromWire {
			return 0, false, fmt.Errorf("%s redirects", in.program)
		}
		if !f.cfg.EBPFRouting {
			return 0, false, fmt.Errorf("%s redirects with kernel routing", in.program)
		}
		return got.verdict, true, checkRedirected(before, got.out)
	default:
		return 0, false, fmt.Errorf("%s", got.verdict)
	}
	if !bytes.Equal(before, got.out) {
		return 0, false, fmt.Errorf("packet is not redirected, but changed to\n%s", layers(got.out))
	}
	if got.mark != in.mark {
		return 0, false, fmt.Errorf("packet is not redirected, but its mark is now %#x", got.mark)
	}
	return got.verdict, true, nil
}

func shortForKernel(b []byte) bool {
	if len(b) <= ethLen {
		return true
	}
	switch uint16(b[12])<<8 | uint16(b[13]) {
	case etherIPv4:
		return len(b) < ethLen+ipv4Len
	case etherIPv6:
		return len(b) < ethLen+ipv6Len
	}
	return false
}

// checkRedirected allows a redirected packet new MACs, one hop less and the checksum of that, and nothing else.
func checkRedirected(before, after []byte) error {
	if len(before) != len(after) {
		return fmt.Errorf("packet has %d bytes, had %d", len(after), len(before))
	}
	want := bytes.Clone(before)
	copy(want, after[:12])
	switch uint16(before[12])<<8 | uint16(before[13]) {
	case etherIPv4:
		want[ethLen+8]--
		copy(want[ethLen+10:], after[ethLen+10:ethLen+12])
		header := func(b []byte) uint16 { return checksum(b[ethLen : ethLen+ipv4Len]) }
		if header(before) != header(after) {
			return fmt.Errorf("checksum over the header was %04x and is %04x\n%s", header(before), header(after), layers(after))
		}
	case etherIPv6:
		want[ethLen+7]--
	default:
		return fmt.Errorf("packet that is not IP is redirected")
	}
	if !bytes.Equal(want, after) {
		return fmt.Errorf("redirecting changed more than MACs and hops:\n%s", layers(after))
	}
	return nil
}

// checkCounters compares the counters of all programs with the drops seen so far.
func (f *fuzzer) checkCounters(tb testing.TB) error {
	counted := map[string]uint64{}
	for _, d := range f.counters(tb) {
		counted[d.Program] += d.Packets
	}
	for _, program := range programNames {
		if counted[program] != f.dropped[program] {
			return fmt.Errorf("%s dropped %d packets and counted %d", program, f.dropped[program], counted[program])
		}
	}
	return nil
}

// randomPacket is a packet that could be, with some bytes that could not. Everything follows from r.
func randomPacket(r *rand.Rand) []byte {
	cast := []member{podA, podA2, ghost, podB, podC, podFar, nodeA, nodeB, world,
		{v4: addr("224.0.0.1"), v6: addr("ff02::1")}, {v4: addr("0.0.0.0"), v6: addr("::")}, {v4: addr("169.254.1.1"), v6: addr("fe80::1")}}
	family := 4 + 2*r.IntN(2)
	src := podA
	if r.IntN(3) == 0 {
		src = cast[r.IntN(len(cast))]
	}
	p := fromPod().ip(src.addr(family), cast[r.IntN(len(cast))].addr(family))
	if r.IntN(4) == 0 {
		p = p.ttl(uint8(r.IntN(4)))
	}
	if family == 4 && r.IntN(6) == 0 {
		p = p.ipOptions(make([]byte, 4*(1+r.IntN(10)))...)
	}
	for family == 6 && r.IntN(4) == 0 && len(p.extensions) < 3 {
		p = p.extend([]uint8{protoHopByHop, protoRouting, protoDstOptions}[r.IntN(3)])
	}
	switch r.IntN(4) {
	case 0:
		p = p.tcp(uint16(r.Uint32()), 80)
	case 1:
		p = p.udp(uint16(r.Uint32()), 53)
	case 2:
		p = p.echo()
	default:
		p = p.raw(uint8(r.Uint32()), nil)
	}
	p = p.payload(string(make([]byte, r.IntN(64))))
	if r.IntN(20) == 0 {
		p = p.sized(remoteMTU - 8 + r.IntN(16))
	}
	if r.IntN(6) == 0 {
		p = p.fragment(uint16(8*r.IntN(100)), r.IntN(2) == 0)
	}
	b := p.bytes()
	if r.IntN(2) == 0 { // break something, most of the time a header
		for range 1 + r.IntN(4) {
			b[r.IntN(min(len(b), 64))] = byte(r.Uint32())
		}
	}
	if r.IntN(10) == 0 {
		b = b[:ethLen+1+r.IntN(len(b)-ethLen)]
	}
	if r.IntN(10) == 0 {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

// TestRandomPackets is FuzzPrograms without luck: the same packets every time.
func TestRandomPackets(t *testing.T) {
	const packets, chunk = 6000, 100
	seen := map[string]int{}
	for _, cfg := range everyConfig() {
		f := newFuzzer(t, cfg)
		r := testenv.Rand(t)
		for i := 0; i < packets; i += chunk {
			var err error
			f.stage.do(func() { err = f.randomChunk(r, chunk, seen) })
			if err == nil {
				err = f.checkCounters(t)
			}
			if err != nil {
				t.Fatalf("%s, packets %d to %d: %v", cfgName(cfg), i, i+chunk, err)
			}
		}
	}
	t.Logf("verdicts: %v", seen)
	for _, want := range []string{"from_pod next", "from_pod drop", "from_pod redirect", "to_pod next", "to_pod drop", "from_wire next", "from_wire redirect", "to_wire next", "to_wire drop"} {
		if seen[want] < 100 {
			t.Errorf("only %d times %q: the packets do not try enough", seen[want], want)
		}
	}
}

func (f *fuzzer) randomChunk(r *rand.Rand, packets int, seen map[string]int) error {
	for range packets {
		in := run{in: randomPacket(r), device: "blpoda"}
		if r.IntN(4) == 0 {
			in.mark = r.Uint32()
		}
		if r.IntN(8) == 0 {
			in.gsoSize = uint32(1 + r.IntN(2*remoteMTU))
		}
		for _, program := range programNames {
			in.program = program
			v, ran, err := f.check(in)
			if err != nil {
				return fmt.Errorf("%s: %w\n%s% x", program, err, layers(in.in), in.in)
			}
			if ran {
				seen[program+" "+v.String()]++
			}
		}
	}
	return nil
}

// FuzzPrograms runs any bytes through all programs in all configurations.
func FuzzPrograms(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 64 {
		f.Add(randomPacket(r), uint32(0), uint32(0))
	}
	f.Add(fromPod().ipv4(podA.v4, podB.v4).tcp(1, 2).sized(3000).bytes(), uint32(0), uint32(1360))
	f.Add(toWire().ipv4(podA.v4, world.v4).udp(1, 2).bytes(), uint32(1), uint32(0))
	var fuzzers []*fuzzer
	for _, cfg := range everyConfig() {
		fuzzers = append(fuzzers, newFuzzer(f, cfg))
	}
	f.Fuzz(func(t *testing.T, packet []byte, mark, gsoSize uint32) {
		if len(packet) > 3000 { // what fits into the linear part of the kernel's test packet
			return
		}
		for _, z := range fuzzers {
			for _, program := range programNames {
				in := run{program: program, in: packet, device: "blpoda", mark: mark, gsoSize: gsoSize}
				var err error
				z.stage.do(func() { _, _, err = z.check(in) })
				if err == nil {
					err = z.checkCounters(t)
				}
				if err != nil {
					t.Fatalf("%s, %s: %v\n%s", cfgName(z.cfg), program, err, layers(packet))
				}
			}
		}
	})
}
