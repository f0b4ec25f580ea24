package datapath

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/device"
)

// traffic is a TCP connection with up to a thousand echoes a second and as many UDP requests, that run until it is stopped.
type traffic struct {
	stop                    atomic.Bool
	done                    sync.WaitGroup
	echoed, answered        atomic.Int64
	tcpFailure, udpFailures error
}

func startTraffic(t *testing.T, from, to place, dst member, family int) *traffic {
	t.Helper()
	a := dst.addr(family)
	to.serveTCP(t, a)
	to.serveUDP(t, a)
	tcp, udp := from.dial(t, "tcp", a), from.dial(t, "udp", a)
	tr := &traffic{}
	tr.done.Go(func() {
		tick := time.NewTicker(time.Millisecond) // leaves some of the processor to others
		defer tick.Stop()
		for !tr.stop.Load() {
			<-tick.C
			if err := echoTCP(tcp, 1<<16); err != nil {
				tr.tcpFailure = err
				return
			}
			tr.echoed.Add(1)
		}
	})
	tr.done.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; !tr.stop.Load(); i++ {
			<-tick.C
			if err := echoUDP(udp, 8+i%1000); err != nil {
				tr.udpFailures = errors.Join(tr.udpFailures, fmt.Errorf("request %d: %w", i, err))
				return
			}
			tr.answered.Add(1)
		}
	})
	return tr
}

// progress waits until both kinds of traffic have gone on for a while.
func (tr *traffic) progress(t *testing.T) {
	t.Helper()
	echoed, answered := tr.echoed.Load()+5, tr.answered.Load()+50
	for deadline := time.Now().Add(6 * patience); tr.echoed.Load() < echoed || tr.answered.Load() < answered; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("traffic does not go on: %d echoes of %d, %d answers of %d", tr.echoed.Load(), echoed, tr.answered.Load(), answered)
		}
	}
}

// finish ends the traffic and fails if anything was lost.
func (tr *traffic) finish(t *testing.T) {
	t.Helper()
	tr.stop.Store(true)
	tr.done.Wait()
	if err := errors.Join(tr.tcpFailure, tr.udpFailures); err != nil {
		t.Errorf("traffic: %v", err)
	}
	t.Logf("%d echoes of 64 KB, %d UDP answers", tr.echoed.Load(), tr.answered.Load())
}

// The agent goes away and comes back, again and again, under traffic of both families: nothing is lost. It
// comes back with another configuration each time.
func TestAdoptUnderTraffic(t *testing.T) {
	for _, legacy := range attachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, options{cfg: ebpfRouting, legacy: legacy})
			var remote, local []*traffic
			for _, family := range families {
				remote = append(remote, startTraffic(t, n.a1.place, n.b1.place, n.b1.member, family))
				local = append(local, startTraffic(t, n.a2.place, n.a1.place, n.a1.member, family))
			}
			all := slices.Concat(remote, local)
			for _, cfg := range []Config{{}, {EBPFRouting: true, Masquerade: true}, {Masquerade: true}, ebpfRouting} {
				for _, node := range []*node{n.a, n.b} {
					node.close(t)
					for _, tr := range remote { // without an agent
						tr.progress(t)
					}
					node.cfg.EBPFRouting, node.cfg.Masquerade = cfg.EBPFRouting, cfg.Masquerade
					node.start(t, legacy)
					for _, tr := range all {
						tr.progress(t)
					}
				}
			}
			for _, tr := range all {
				tr.finish(t)
			}
			n.dropsNothing(t)
		})
	}
}

// A newer agent adopts counters and tables; the number of programs on a device stays what it was.
func TestAdoptKeepsState(t *testing.T) {
	for _, legacy := range attachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			adoptKeepsState(t, legacy)
		})
	}
}

func adoptKeepsState(t *testing.T, legacy bool) {
	n := newNetwork(t, options{cfg: ebpfRouting, legacy: legacy})
	spoofed := eth(n.a1.mac, n.a1.gateway).ipv4(podB.v4, n.a2.v4).udp(1, 2).bytes()
	n.a1.send(t, "eth0", spoofed)
	want := map[string]uint64{"from_pod spoofed_source": 1}
	n.awaitDropped(t, n.a, want)
	attached := n.a.programsOn(t, n.a1.pair.HostIndex)
	n.a.close(t)

	n.a.do(t, func() (err error) {
		n.a.d, err = open(n.a.cfg, n.a.programsHere(), testLog(t))
		n.a.d.objects.tcx = n.a.d.objects.tcx && !legacy
		return err
	})
	if got := n.a.dropped(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counters after adoption: %v, expected %v", got, want)
	}
	if changed, err := n.a.d.Endpoints.Sync(n.a.endpoints()); changed != 0 || err != nil {
		t.Errorf("%d endpoints were not adopted: %v", changed, err)
	}
	if changed, err := n.a.d.Routes.Sync(n.a.routes); changed != 0 || err != nil {
		t.Errorf("%d routes were not adopted: %v", changed, err)
	}
	n.a.do(t, func() error { return n.a.d.AttachPod(n.a1.pair.HostName, n.a1.pair.HostIndex) })
	again := n.a.programsOn(t, n.a1.pair.HostIndex)
	if len(again) != len(attached) {
		t.Errorf("programs on the pod's device: %v before, %v after", attached, again)
	}
	if slices.Equal(again, attached) {
		t.Errorf("the programs %v were not replaced", attached)
	}
}

// adopt is what the next agent does before it attaches programs, of which it has none here.
func (n *node) adopt(t *testing.T) {
	t.Helper()
	n.do(t, func() (err error) {
		n.d, err = openVersion(t, n.cfg, n.version, nil)
		return err
	})
}

// programsOn gives the ids of the programs at ingress and egress of a device, as the kernel has them: tcx links, or
// our filters where the datapath uses those.
func (n *node) programsOn(t *testing.T, ifindex int) []ebpf.ProgramID {
	t.Helper()
	var all []ebpf.ProgramID
	n.do(t, func() error {
		if !n.d.objects.tcx {
			filters, err := device.Filters(ifindex)
			for _, f := range filters {
				all = append(all, ebpf.ProgramID(f.ProgramID))
			}
			return err
		}
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			result, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: at})
			if err != nil {
				return err
			}
			for _, p := range result.Programs {
				all = append(all, p.ID)
			}
		}
		return nil
	})
	return all
}

// What Remove says that it has removed runs no more when it says so.
func TestRemoveDetaches(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: ebpfRouting})
	if on := n.a.programsOn(t, n.a1.pair.HostIndex); len(on) == 0 {
		t.Fatal("the pod's device has no program")
	}
	n.a.close(t)
	n.a.do(t, func() error {
		removed, err := Remove(n.a.cfg.Root)
		if want := "program from_pod of device " + n.a1.pair.HostName; !slices.Contains(removed, want) {
			t.Errorf("removed are %q, want %q", removed, want)
		}
		return err
	})
	if on := n.a.programsOn(t, n.a1.pair.HostIndex); len(on) != 0 {
		t.Errorf("programs of the pod's device after Remove: %v", on)
	}
	n.a.adopt(t) // for the cleanup
}

// A version with other layouts comes under traffic and the one before comes back: nothing is lost, none takes the other's entries for its own, and
// the pins are always those of the programs that run.
func TestVersionsUnderTraffic(t *testing.T) {
	for _, legacy := range attachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, options{cfg: Config{EBPFRouting: true, Masquerade: true, Policy: true}, legacy: legacy})
			all := []*traffic{
				startTraffic(t, n.a1.place, n.b1.place, n.b1.member, 4), startTraffic(t, n.a2.place, n.a1.place, n.a1.member, 6),
			}
			before := pinsAt(t, n.a.cfg.Root)
			for _, version := range []func(testing.TB, *ebpf.CollectionSpec){nextVersion, nil, nextVersion} {
				n.a.close(t)
				n.a.version = version
				n.a.adopt(t) // is killed before it commits
				if got := pinsAt(t, n.a.cfg.Root); !slices.Equal(got, before) {
					t.Errorf("pins before Commit: %q, want %q", got, before)
				}
				if changed, err := n.a.d.Endpoints.Sync(n.a.endpoints()); err != nil || changed != len(n.a.endpoints()) {
					t.Errorf("%d endpoints of %d are written: the others are the other version's (%v)", changed, len(n.a.endpoints()), err)
				}
				for _, tr := range all {
					tr.progress(t)
				}
				n.a.close(t)
				n.a.start(t, legacy)
				for _, tr := range all {
					tr.progress(t)
				}
				now := pinsAt(t, n.a.cfg.Root)
				for _, name := range pinnedMaps {
					if !slices.Contains(now, n.a.d.objects.pins.name(name)) {
						t.Errorf("%s is not pinned", n.a.d.objects.pins.name(name))
					}
				}
				if len(now) != len(before) || slices.Equal(now, before) {
					t.Errorf("pins after Commit: %q, before it %q", now, before)
				}
				before = now
			}
			for _, tr := range all {
				tr.finish(t)
			}
			n.dropsNothing(t)

			// The next one of the same version finds what it wants.
			n.a.close(t)
			n.a.adopt(t)
			if changed, err := n.a.d.Endpoints.Sync(n.a.endpoints()); changed != 0 || err != nil {
				t.Errorf("%d endpoints were not adopted: %v", changed, err)
			}
		})
	}
}
