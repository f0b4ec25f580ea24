package fwd_test

import (
	"bytes"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// What from_pod redirects while a pod sends by a netkit device passes to_pod and to_wire unchecked, by a mark that only
// this load of the programs knows.
func TestHandledOnce(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true, Services: true, Netkit: true, Handled: 0x0123456789abcdef})
	run := func(in harness.Run) (out harness.Outcome) {
		t.Helper()
		var err error
		if r.Netns.Do(func() { out, err = r.Run(in) }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	toPod := fixtures.ToPod().Ipv4(fixtures.NodeB.V4, fixtures.NoPod.V4).Udp(1, 2) // which to_pod drops
	sends := harness.PodSends(fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodA2.V4).Udp(1, 2))

	handled := run(sends)
	if handled.Verdict != harness.VerdictRedirect || handled.CB[0] == 0 || handled.CB[1] == 0 {
		t.Fatalf("a pod sends by a netkit device: verdict %d, control block %x, want a redirected packet with a mark", handled.Verdict, handled.CB)
	}
	sends.Ingress = "blpoda"
	if got := run(sends); got.Verdict != harness.VerdictRedirect || got.CB != [5]uint32{} {
		t.Errorf("a pod sends by a veth device: verdict %d, control block %x, want a redirected packet without a mark", got.Verdict, got.CB)
	}
	for name, in := range map[string]harness.Run{
		"a spoofed source":  harness.PodSends(fixtures.FromPod().Ipv4(fixtures.PodB.V4, fixtures.PodA2.V4).Udp(1, 2)),
		"a packet to stack": harness.PodSends(fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.NodeA.V4).Udp(1, 2)),
	} {
		if got := run(in); got.CB[0] != 0 || got.CB[1] != 0 {
			t.Errorf("%s has a mark: %x", name, got.CB)
		}
	}
	for _, program := range []string{bpf.ProgToPod, bpf.ProgToWire} {
		in := harness.StackDelivers(toPod)
		if in.Program = program; program == bpf.ProgToWire {
			in = harness.StackSends(fixtures.ToPod().Ipv4(fixtures.PodA.V4, fixtures.External.V4).Udp(1, 2)) // which to_wire masquerades
		}
		in.CB = handled.CB
		if got := run(in); got.Verdict != harness.VerdictNext || string(got.Out) != string(in.In) || got.CB != [5]uint32{} {
			t.Errorf("%s: a handled packet has verdict %d, changed %t, control block %x", program, got.Verdict, string(got.Out) != string(in.In), got.CB)
		}
		for half := range 2 {
			in.CB = handled.CB
			in.CB[half] ^= 1 << 9
			if got := run(in); got.Verdict == harness.VerdictNext && string(got.Out) == string(in.In) {
				t.Errorf("%s: a packet with a wrong mark %x passes unchecked", program, in.CB)
			}
		}
	}
}

// A packet has no mark where no program takes it: the pod that receives it could read the number, and so could a network
// that is this machine's.
func TestHandledWithoutProgram(t *testing.T) {
	const number = 0x0123456789abcdef
	marked := [2]uint32{number & 0xffffffff, number >> 32}
	for name, c := range map[string]struct {
		cfg          config.Datapath
		pods, uplink [2]uint32 // the marks of packets to local pods, and of those to other nodes
	}{
		"neither program": {cfg: config.Datapath{EBPFRouting: true}},
		"to_wire":         {cfg: config.Datapath{EBPFRouting: true, Masquerade: true}, uplink: marked},
		"to_pod":          {cfg: config.Datapath{EBPFRouting: true, Policy: true}, pods: marked},
		"both":            {cfg: config.Datapath{EBPFRouting: true, Services: true}, pods: marked, uplink: marked},
	} {
		for device, netkit := range map[string]bool{"netkit": true, "veth": false} {
			t.Run(device+", "+name, func(t *testing.T) {
				c.cfg.Netkit, c.cfg.Handled = netkit, number
				r := harness.New(t, c.cfg)
				run := func(what string, in harness.Run, want [2]uint32) {
					t.Helper()
					if !netkit {
						in.Ingress = in.Device
					}
					var got harness.Outcome
					var err error
					if r.Netns.Do(func() { got, err = r.Run(in) }); err != nil {
						t.Fatal(err)
					}
					if mark := [2]uint32(got.CB[:2]); got.Verdict != harness.VerdictRedirect || mark != want {
						t.Errorf("%s: verdict %s, mark %x, want a redirected packet with mark %x", what, got.Verdict, mark, want)
					}
				}
				ofNetkit := func(mark [2]uint32) [2]uint32 {
					if netkit {
						return mark
					}
					return [2]uint32{}
				}
				local := harness.PodSends(fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodA2.V4).Udp(1, 2))
				run("to a local pod", local, ofNetkit(c.pods))
				run("to another node", harness.PodSends(fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Udp(1, 2)), ofNetkit(c.uplink))
				limit(t, r, fwd.Limit{Rate: 1 << 30})
				run("to a pod with a limit", local, c.pods)
				wire := harness.WireBrings(fixtures.FromWire().Ipv4(fixtures.PodB.V4, fixtures.PodA2.V4).Udp(1, 2))
				wire.Ingress = wire.Device
				run("from the wire to a pod with a limit", wire, c.pods)
			})
		}
	}
}

// The source MAC of frames to the node is hidden on parents of macvlan devices, whose program marks them. On other
// uplinks it stays: rules of the node may read it.
func TestFromWireHidesSource(t *testing.T) {
	const handled, source = 0x0123456789abcdef, 0x0000665544332212
	r := harness.New(t, config.Datapath{EBPFRouting: true, Macvlan: true, HostNetns: 1, Handled: handled, MacvlanSource: source})
	in := harness.WireBrings(fixtures.FromWire().Ipv4(fixtures.PodB.V4, fixtures.NodeA.V4).Udp(1, 2))
	for name, c := range map[string]struct {
		mark   [5]uint32
		hidden bool
	}{
		"no mark":             {},
		"of a parent":         {[5]uint32{^uint32(handled & 0xffffffff), ^uint32(handled >> 32)}, true},
		"the mark of another": {[5]uint32{handled & 0xffffffff, handled >> 32}, false},
	} {
		in.CB = c.mark
		var out harness.Outcome
		var err error
		if r.Netns.Do(func() { out, err = r.Run(in) }); err != nil {
			t.Fatal(err)
		}
		want := bytes.Clone(in.In)
		if c.hidden {
			copy(want[6:12], []byte{0x12, 0x22, 0x33, 0x44, 0x55, 0x66})
		}
		if out.Verdict != harness.VerdictNext || !bytes.Equal(out.Out, want) {
			t.Errorf("%s: verdict %s, source MAC %x, want %x", name, out.Verdict, out.Out[6:12], want[6:12])
		}
		if c.hidden && out.CB != [5]uint32{} {
			t.Errorf("%s: the mark stays: %x", name, out.CB)
		}
	}
}
