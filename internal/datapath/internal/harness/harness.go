// Package harness runs packets through the programs: a datapath with the tables of one node, attached to nothing. Programs are loaded when a test
// uses them first, and a datapath goes to the next test of the same configuration.
package harness

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Netns is a thread in its own network namespace, with a device for each fixture that has one: BPF_PROG_TEST_RUN
// looks up devices in the caller's namespace. The namespace ends with the process.
type Netns struct {
	work    chan func()
	Devices map[string]int
	err     error
}

var theNetns = sync.OnceValue(func() *Netns {
	s := &Netns{work: make(chan func()), Devices: map[string]int{}}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is not used for anything else
		if s.err = stayOnCPU(); s.err == nil {
			s.err = s.build("eth0", "blpoda", "blpoda2", "tunnel")
		}
		close(ready)
		for f := range s.work {
			f()
		}
	}()
	<-ready
	return s
})

// stayInSecond waits where another second of the datapath's clock (2^30 ns) is about to begin, so that what follows has half of one: in
// each, the first packet of a way that the kernel's routes say goes by the kernel itself (wire_xdp_nexthop). That clock is read coarsely
// (ktime_coarse), and goes on once in a tick of the kernel, of 10 ms at most.
func stayInSecond(tb testing.TB) {
	tb.Helper()
	const second, tick = time.Duration(1 << 30), 10 * time.Millisecond
	now, err := table.Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	switch into := now % second; {
	case into < 2*tick:
		time.Sleep(2*tick - into)
	case into > second/2:
		time.Sleep(second - into + 2*tick)
	}
}

// InSecond runs something that may be run again: until all of it was within one second of the datapath's clock. A busy machine may need
// more than what stayInSecond leaves.
func InSecond(tb testing.TB, f func()) {
	tb.Helper()
	second := func() time.Duration {
		now, err := table.Monotonic()
		if err != nil {
			tb.Fatal(err)
		}
		return now >> 30
	}
	for {
		stayInSecond(tb)
		began := second()
		f()
		if second() == began {
			return
		}
	}
}

// stayOnCPU keeps the thread on its CPU, so that all runs share per-CPU state.
func stayOnCPU() error {
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return fmt.Errorf("ask for the CPU: %w", errno)
	}
	var here unix.CPUSet
	here.Set(int(cpu))
	if err := unix.SchedSetaffinity(0, &here); err != nil {
		return fmt.Errorf("stay on CPU %d: %w", cpu, err)
	}
	return nil
}

func (s *Netns) build(names ...string) error {
	// Whether a frame is the device's own or another host's follows from these.
	macs := map[string]fwd.MAC{"eth0": fixtures.NodeA.Mac, "blpoda": fixtures.PodA.Gateway, "blpoda2": fixtures.PodA2.Gateway, "tunnel": fixtures.TunnelMAC}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	for i, name := range names {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: name})
		veth.PeerName = fmt.Sprintf("peer%d", i)
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("make device %s: %w", name, err)
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find device %s: %w", name, err)
		}
		s.Devices[name] = link.Attrs().Index
		if address, ok := macs[name]; ok {
			if err := netlink.LinkSetHardwareAddr(link, address[:]); err != nil {
				return fmt.Errorf("set address of %s: %w", name, err)
			}
		}
	}
	return prepareXDP("eth0", "peer0")
}

// Do runs f in the netns. It must not be called from within f.
func (s *Netns) Do(f func()) {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

// Skb is struct __sk_buff of include/uapi/linux/bpf.h. BPF_PROG_TEST_RUN takes Mark, Priority,
// IngressIfindex, Ifindex, CB, Tstamp, WireLen, GSOSegs, GSOSize and Hwtstamp; the others must be zero.
type Skb struct {
	Len, PktType, Mark, QueueMapping, Protocol, VLANPresent, VLANTCI, VLANProto uint32
	Priority, IngressIfindex, Ifindex, TCIndex                                  uint32
	CB                                                                          [5]uint32
	Hash, TCClassid, Data, DataEnd, NAPIID, Family, RemoteIP4, LocalIP4         uint32
	RemoteIP6, LocalIP6                                                         [4]uint32
	RemotePort, LocalPort, DataMeta                                             uint32
	FlowKeys, Tstamp                                                            uint64
	WireLen, GSOSegs                                                            uint32
	Sk                                                                          uint64
	GSOSize, TstampType                                                         uint32
	Hwtstamp                                                                    uint64
}

// What a program may return: enum tc_action of bpf/lib/net/verdict.h and TC_ACT_REDIRECT of the kernel.
const (
	VerdictNext     = Verdict(0xffffffff)
	VerdictDrop     = Verdict(2)
	VerdictRedirect = Verdict(7)
)

type Verdict uint32

func (v Verdict) String() string {
	switch v {
	case VerdictNext:
		return "next"
	case VerdictDrop:
		return "drop"
	case VerdictRedirect:
		return "redirect"
	}
	return fmt.Sprintf("unknown verdict %d", uint32(v))
}

// Harness is a datapath with the tables of node A, attached to no device. Programs are loaded on first use.
type Harness struct {
	D     *Opened
	Netns *Netns
	// nextSet is the id of the next set of backends.
	NextSet uint32
}

func New(tb testing.TB, cfg config.Datapath) *Harness {
	tb.Helper()
	testenv.Root(tb)
	s := theNetns()
	if s.err != nil {
		tb.Fatalf("build stage: %v", s.err)
	}
	r := &Harness{D: lendDatapath(tb, cfg), Netns: s, NextSet: 1}
	r.fillTables(tb)
	return r
}

func (r *Harness) fillTables(tb testing.TB) {
	tb.Helper()
	endpoints := map[netip.Addr]fwd.Endpoint{}
	for device, pod := range map[string]fixtures.Member{"blpoda": fixtures.PodA, "blpoda2": fixtures.PodA2} {
		for _, a := range []netip.Addr{pod.V4, pod.V6} {
			endpoints[a] = fwd.Endpoint{Interface: r.Netns.Devices[device], PodMAC: pod.Mac, HostMAC: pod.Gateway}
		}
	}
	if _, err := r.D.Endpoints.Sync(endpoints); err != nil {
		tb.Fatal(err)
	}
	if _, err := r.D.Routes.Sync(fixtures.RoutesOfNodeA(r.Netns.Devices["eth0"], r.Netns.Devices["tunnel"])); err != nil {
		tb.Fatal(err)
	}
	if err := r.D.Lease.Renew(time.Hour); err != nil {
		tb.Fatal(err)
	}
}

// Run is one packet through one program.
type Run struct {
	Program string
	In      []byte
	// device is where the packet is, "eth0" unless said otherwise.
	Device string
	// mark and gsoSize are fields of the skb.
	Mark, GsoSize uint32
	// ingress is the device that brought the packet to the stack; "" if the node itself has made it.
	Ingress string
	// cb is the control block of the skb.
	CB [5]uint32
}

type Outcome struct {
	Verdict Verdict
	Out     []byte
	Mark    uint32
	CB      [5]uint32
	// Departure is the packet's departure time, in ns of CLOCK_MONOTONIC; 0: none.
	Departure uint64
}

// Program gives a program. Harnesses load only those that a test uses, to save verifier time: TestLoad and
// TestLoadServices load all of them in every configuration.
func (r *Harness) Program(name string) (*ebpf.Program, error) {
	if err := r.D.Objects.LoadMore(name); err != nil {
		return nil, err
	}
	return r.D.Objects.Programs[name], nil
}

// Run must be called in the netns.
func (r *Harness) Run(in Run) (Outcome, error) {
	program, err := r.Program(in.Program)
	if err != nil {
		return Outcome{}, err
	}
	if in.Device == "" {
		in.Device = "eth0"
	}
	if in.Program == bpf.ProgWireXdp {
		return r.runXDP(program, in)
	}
	ctx := Skb{Mark: in.Mark, GSOSize: in.GsoSize, Ifindex: uint32(r.Netns.Devices[in.Device]), IngressIfindex: uint32(r.Netns.Devices[in.Ingress]), CB: in.CB}
	var after Skb
	o := ebpf.RunOptions{Data: in.In, DataOut: make([]byte, len(in.In)+64), Context: &ctx, ContextOut: &after}
	code, err := program.Run(&o)
	if err != nil {
		return Outcome{}, fmt.Errorf("run %s: %w", in.Program, err)
	}
	return Outcome{Verdict(code), o.DataOut, after.Mark, after.CB, after.Tstamp}, nil
}

// Counters gives every drop counter that is not zero, by "program reason".
func (r *Harness) Counters(tb testing.TB) map[string]flow.Drop {
	tb.Helper()
	return r.D.Dropped(tb)
}
