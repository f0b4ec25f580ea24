package datapath

import (
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// bpffs gives an own BPF file system, mounted nowhere: it goes with the file descriptor, also when the
// test process is killed.
func bpffs(tb testing.TB) string {
	tb.Helper()
	fs, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		tb.Fatalf("open bpffs: %v", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		tb.Fatalf("create bpffs: %v", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		tb.Fatalf("mount bpffs: %v", err)
	}
	tb.Cleanup(func() { unix.Close(mount) })
	return fmt.Sprintf("/proc/self/fd/%d/beeline", mount)
}

func testLog(tb testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{tb}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type testWriter struct{ tb testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.tb.Helper()
	w.tb.Logf("%s", p)
	return len(p), nil
}

// stage is a thread in a network namespace of its own, with a device for each member of the cast that has
// one: BPF_PROG_TEST_RUN looks devices up in the namespace of the calling thread. The namespace goes with
// the process.
type stage struct {
	work    chan func()
	devices map[string]int
	err     error
}

var theStage = sync.OnceValue(func() *stage {
	s := &stage{work: make(chan func()), devices: map[string]int{}}
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
	now, err := Monotonic()
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

// inSecond runs something that may be run again: until all of it was within one second of the datapath's clock. A busy machine may need
// more than what stayInSecond leaves.
func inSecond(tb testing.TB, f func()) {
	tb.Helper()
	second := func() time.Duration {
		now, err := Monotonic()
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

// stayOnCPU keeps the thread on the CPU that it is on: what the programs keep for each CPU is then that of all their runs.
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

func (s *stage) build(names ...string) error {
	// Whether a frame is the device's own or another host's follows from these.
	macs := map[string]MAC{"eth0": nodeA.mac, "blpoda": podA.gateway, "blpoda2": podA2.gateway, "tunnel": tunnelMAC}
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
		s.devices[name] = link.Attrs().Index
		if address, ok := macs[name]; ok {
			if err := netlink.LinkSetHardwareAddr(link, address[:]); err != nil {
				return fmt.Errorf("set address of %s: %w", name, err)
			}
		}
	}
	return prepareXDP("eth0", "peer0")
}

// do runs f on the stage. It must not be called from within f.
func (s *stage) do(f func()) {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

// skb is struct __sk_buff of include/uapi/linux/bpf.h. BPF_PROG_TEST_RUN takes Mark, Priority,
// IngressIfindex, Ifindex, CB, Tstamp, WireLen, GSOSegs, GSOSize and Hwtstamp; the others must be zero.
type skb struct {
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
	verdictNext     = verdict(0xffffffff)
	verdictDrop     = verdict(2)
	verdictRedirect = verdict(7)
)

type verdict uint32

func (v verdict) String() string {
	switch v {
	case verdictNext:
		return "next"
	case verdictDrop:
		return "drop"
	case verdictRedirect:
		return "redirect"
	}
	return fmt.Sprintf("unknown verdict %d", uint32(v))
}

// rig is a datapath with the tables of node A (see cast_test.go), attached to nothing. Programs are loaded when they are used first.
type rig struct {
	d     *opened
	stage *stage
	// nextSet is the id of the next set of backends.
	nextSet uint32
}

func newRig(tb testing.TB, cfg Config) *rig {
	tb.Helper()
	testenv.Root(tb)
	s := theStage()
	if s.err != nil {
		tb.Fatalf("build stage: %v", s.err)
	}
	r := &rig{d: lendDatapath(tb, cfg), stage: s, nextSet: 1}
	r.fillTables(tb)
	return r
}

func (r *rig) fillTables(tb testing.TB) {
	tb.Helper()
	endpoints := map[netip.Addr]Endpoint{}
	for device, pod := range map[string]member{"blpoda": podA, "blpoda2": podA2} {
		for _, a := range []netip.Addr{pod.v4, pod.v6} {
			endpoints[a] = Endpoint{Interface: r.stage.devices[device], PodMAC: pod.mac, HostMAC: pod.gateway}
		}
	}
	if _, err := r.d.Endpoints.Sync(endpoints); err != nil {
		tb.Fatal(err)
	}
	if _, err := r.d.Routes.Sync(routesOfNodeA(r.stage.devices["eth0"], r.stage.devices["tunnel"])); err != nil {
		tb.Fatal(err)
	}
	if err := r.d.Lease.Renew(time.Hour); err != nil {
		tb.Fatal(err)
	}
}

// run is one packet through one program.
type run struct {
	program string
	in      []byte
	// device is where the packet is, "eth0" unless said otherwise.
	device string
	// mark and gsoSize are fields of the skb.
	mark, gsoSize uint32
	// ingress is the device that brought the packet to the stack; "" if the node itself has made it.
	ingress string
}

type outcome struct {
	verdict verdict
	out     []byte
	mark    uint32
}

// program gives a program, loaded.
func (r *rig) program(name string) (*ebpf.Program, error) {
	if err := r.d.use(name); err != nil {
		return nil, err
	}
	return r.d.objects.program(name)
}

// run must be called on the stage.
func (r *rig) run(in run) (outcome, error) {
	program, err := r.program(in.program)
	if err != nil {
		return outcome{}, err
	}
	if in.device == "" {
		in.device = "eth0"
	}
	if in.program == bpfProgWireXdp {
		return r.runXDP(program, in)
	}
	ctx := skb{Mark: in.mark, GSOSize: in.gsoSize, Ifindex: uint32(r.stage.devices[in.device]), IngressIfindex: uint32(r.stage.devices[in.ingress])}
	var after skb
	o := ebpf.RunOptions{Data: in.in, DataOut: make([]byte, len(in.in)+64), Context: &ctx, ContextOut: &after}
	code, err := program.Run(&o)
	if err != nil {
		return outcome{}, fmt.Errorf("run %s: %w", in.program, err)
	}
	return outcome{verdict(code), o.DataOut, after.Mark}, nil
}

// counters gives every drop counter that is not zero, by "program reason".
func (r *rig) counters(tb testing.TB) map[string]Drop {
	tb.Helper()
	all, err := r.d.Drops.All()
	if err != nil {
		tb.Fatal(err)
	}
	counted := map[string]Drop{}
	for _, d := range all {
		if d.Packets != 0 || d.Bytes != 0 {
			counted[d.Program+" "+d.Reason.String()] = d
		}
	}
	return counted
}
