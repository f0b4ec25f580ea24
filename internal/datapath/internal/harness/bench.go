package harness

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

// Measure runs one packet b.N times and reports the kernel's time for each.
func (r *Harness) Measure(b *testing.B, in Run, want Verdict) {
	const piece = 200 // less than there are hops
	program, err := r.Program(in.Program)
	if err != nil {
		b.Fatal(err)
	}
	var means []time.Duration
	b.ResetTimer()
	r.Netns.Do(func() {
		ctx := Skb{Mark: in.Mark, Ifindex: uint32(r.Netns.Devices[in.Device])}
		for left := b.N; left > 0; left -= piece {
			runs := min(left, piece)
			code, mean, failure := Repeat(program, in.In, &ctx, runs)
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

// Repeat is BPF_PROG_TEST_RUN as Program.Benchmark has it, with a context. It gives the last verdict and the
// mean time, which the kernel cuts to whole nanoseconds.
func Repeat(p *ebpf.Program, in []byte, ctx *Skb, runs int) (Verdict, time.Duration, error) {
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
			return Verdict(attr.retval), time.Duration(attr.duration), nil
		case unix.EINTR: // the Go runtime has sent a signal
		default:
			return 0, 0, errno
		}
	}
}
