package datapath

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// BenchmarkPrograms gives the time of one packet in one program, for each journey. ns/packet is the kernel's own
// measurement of many runs in a row (the median of such rows), so everything is in the cache: a lower bound,
// good for comparing versions. What running a program costs at all is in every figure; to_wire/nothing-to-do,
// which returns at once, shows it. ns/op is that plus the system calls.
//
// Every run but the first finds the packet as the one before left it: hops count down. The packets therefore
// start with all hops, and a measurement repeats in pieces short enough not to use them up.
func BenchmarkPrograms(b *testing.B) {
	ebpfRouting, plain := Config{EBPFRouting: true, Masquerade: true}, Config{EBPFRouting: true}
	kubeProxy := Config{EBPFRouting: true, Masquerade: true, StackServices: true}
	for _, family := range []struct {
		name string
		n    int
	}{{"IPv4", 4}, {"IPv6", 6}} {
		ip := func(p packet, src, dst member) packet {
			return p.ip(src.addr(family.n), dst.addr(family.n)).ttl(255).tcp(31337, 80).payload("hi")
		}
		for _, c := range []struct {
			name string
			cfg  Config
			run
			verdict verdict
		}{
			{"from_pod/to=pod-here", ebpfRouting, podSends(ip(fromPod(), podA, podA2)), verdictRedirect},
			{"from_pod/to=pod-remote", ebpfRouting, podSends(ip(fromPod(), podA, podB)), verdictRedirect},
			{"from_pod/to=pod-remote,beside-kube-proxy", kubeProxy, podSends(ip(fromPod(), podA, podB)), verdictRedirect},
			{"from_pod/to=pod-remote-unresolved", ebpfRouting, podSends(ip(fromPod(), podA, podC)), verdictRedirect},
			{"from_pod/to=world", ebpfRouting, podSends(ip(fromPod(), podA, world)), verdictNext},
			{"from_pod/spoofed", ebpfRouting, podSends(ip(fromPod(), podB, podA2)), verdictDrop},
			{"from_pod/kernel-routing", Config{Masquerade: true}, podSends(ip(fromPod(), podA, podB)), verdictNext},
			{"from_wire/from=pod-remote", ebpfRouting, wireBrings(ip(fromWire(), podB, podA)), verdictRedirect},
			{"from_wire/from=pod-remote,beside-kube-proxy", kubeProxy, wireBrings(ip(fromWire(), podB, podA)), verdictRedirect},
			{"from_wire/from=pod-remote,without-source-lookup", plain, wireBrings(ip(fromWire(), podB, podA)), verdictRedirect},
			{"from_wire/to=node", ebpfRouting, wireBrings(ip(fromWire(), podB, nodeA)), verdictNext},
			{"from_wire/to=node,without-source-lookup", plain, wireBrings(ip(fromWire(), podB, nodeA)), verdictNext},
			{"to_wire/nothing-to-do", plain, stackSends(ip(toWire(), nodeA, world)), verdictNext},
			{"to_wire/masqueraded", ebpfRouting, stackSends(ip(toWire(), nodeA, world)), verdictNext},
			{"to_pod/from=node", Config{Masquerade: true}, stackDelivers(ip(toPod(), nodeA, podA)), verdictNext},
		} {
			b.Run(c.name+"/"+family.name, func(b *testing.B) {
				newRig(b, c.cfg).measure(b, c.run, c.verdict)
			})
		}
	}
}

// measure runs one packet b.N times and reports the kernel's time for each.
func (r *rig) measure(b *testing.B, in run, want verdict) {
	const piece = 200 // less than there are hops
	program, err := r.program(in.program)
	if err != nil {
		b.Fatal(err)
	}
	var means []time.Duration
	b.ResetTimer()
	r.stage.do(func() {
		ctx := skb{Mark: in.mark, Ifindex: uint32(r.stage.devices[in.device])}
		for left := b.N; left > 0; left -= piece {
			runs := min(left, piece)
			code, mean, failure := repeat(program, in.in, &ctx, runs)
			if failure == nil && code != want {
				failure = fmt.Errorf("verdict %s, expected %s", code, want)
			}
			if failure != nil {
				err = failure
				return
			}
			means = append(means, mean)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	slices.Sort(means)
	b.ReportMetric(float64(means[len(means)/2].Nanoseconds()), "ns/packet")
}

// repeat is BPF_PROG_TEST_RUN as Program.Benchmark has it, with a context. It gives the last verdict and the
// mean time, which the kernel cuts to whole nanoseconds.
func repeat(p *ebpf.Program, in []byte, ctx *skb, runs int) (verdict, time.Duration, error) {
	const progTestRun = 10 // enum bpf_cmd
	var attr struct {      // union bpf_attr, "anonymous struct used by BPF_PROG_TEST_RUN command"
		progFD, retval, dataSizeIn, dataSizeOut uint32
		dataIn, dataOut                         uint64
		repeat, duration, ctxSizeIn, ctxSizeOut uint32
		ctxIn, ctxOut                           uint64
		flags, cpu, batchSize, _                uint32
	}
	context, err := binary.Append(nil, binary.NativeEndian, ctx)
	if err != nil {
		return 0, 0, err
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&in[0])
	pins.Pin(&context[0])
	attr.progFD, attr.repeat = uint32(p.FD()), uint32(runs)
	attr.dataIn, attr.dataSizeIn = uint64(uintptr(unsafe.Pointer(&in[0]))), uint32(len(in))
	attr.ctxIn, attr.ctxSizeIn = uint64(uintptr(unsafe.Pointer(&context[0]))), uint32(len(context))
	for {
		_, _, errno := unix.Syscall(unix.SYS_BPF, progTestRun, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		switch errno {
		case 0:
			return verdict(attr.retval), time.Duration(attr.duration), nil
		case unix.EINTR: // the Go runtime has sent a signal
		default:
			return 0, 0, errno
		}
	}
}
