package load_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

// traffic is a TCP connection with up to a thousand echoes a second and as many UDP requests, until it is stopped.
type traffic struct {
	stop                    atomic.Bool
	done                    sync.WaitGroup
	echoed, replied         atomic.Int64
	tcpFailure, udpFailures error
}

func startTraffic(t *testing.T, from, to netlab.Netns, dst fixtures.Member, family int) *traffic {
	t.Helper()
	a := dst.Addr(family)
	to.ServeTCP(t, a)
	to.ServeUDP(t, a)
	tcp, udp := from.Dial(t, "tcp", a), from.Dial(t, "udp", a)
	tr := &traffic{}
	tr.done.Go(func() {
		tick := time.NewTicker(time.Millisecond) // leaves CPU time to others
		defer tick.Stop()
		for !tr.stop.Load() {
			<-tick.C
			if err := netlab.EchoTCP(tcp, 1<<16); err != nil {
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
			if err := netlab.EchoUDP(udp, 8+i%1000); err != nil {
				tr.udpFailures = errors.Join(tr.udpFailures, fmt.Errorf("request %d: %w", i, err))
				return
			}
			tr.replied.Add(1)
		}
	})
	return tr
}

// progress waits until both kinds of traffic have made progress.
func (tr *traffic) progress(t *testing.T) {
	t.Helper()
	echoed, replied := tr.echoed.Load()+5, tr.replied.Load()+50
	for deadline := time.Now().Add(6 * netlab.Patience); tr.echoed.Load() < echoed || tr.replied.Load() < replied; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("traffic has stopped: %d echoes of %d, %d replies of %d", tr.echoed.Load(), echoed, tr.replied.Load(), replied)
		}
	}
}

// finish ends the traffic and fails the test if anything was lost.
func (tr *traffic) finish(t *testing.T) {
	t.Helper()
	tr.stop.Store(true)
	tr.done.Wait()
	if err := errors.Join(tr.tcpFailure, tr.udpFailures); err != nil {
		t.Errorf("traffic: %v", err)
	}
	t.Logf("%d echoes of 64 KB, %d UDP replies", tr.echoed.Load(), tr.replied.Load())
}

// The agent stops and restarts repeatedly, with another configuration each time, under traffic of both families:
// nothing is lost.
func TestAdoptUnderTraffic(t *testing.T) {
	for _, legacy := range harness.AttachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting, Legacy: legacy})
			var remote, local []*traffic
			for _, family := range fixtures.Families {
				remote = append(remote, startTraffic(t, n.A1.Netns, n.B1.Netns, n.B1.Member, family))
				local = append(local, startTraffic(t, n.A2.Netns, n.A1.Netns, n.A1.Member, family))
			}
			all := slices.Concat(remote, local)
			for _, cfg := range []config.Datapath{{}, {EBPFRouting: true, Masquerade: true}, {Masquerade: true}, fixtures.EbpfRouting} {
				for _, node := range []*netlab.Node{n.A, n.B} {
					node.Close(t)
					for _, tr := range remote { // without an agent
						tr.progress(t)
					}
					node.Cfg.EBPFRouting, node.Cfg.Masquerade = cfg.EBPFRouting, cfg.Masquerade
					node.Start(t, legacy)
					for _, tr := range all {
						tr.progress(t)
					}
				}
			}
			for _, tr := range all {
				tr.finish(t)
			}
			n.DropsNothing(t)
		})
	}
}

// A newer agent adopts counters and tables; the number of programs on a device does not change.
func TestAdoptKeepsState(t *testing.T) {
	for _, legacy := range harness.AttachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			adoptKeepsState(t, legacy)
		})
	}
}

func adoptKeepsState(t *testing.T, legacy bool) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting, Legacy: legacy})
	spoofed := fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ipv4(fixtures.PodB.V4, n.A2.V4).Udp(1, 2).Bytes()
	n.A1.Send(t, "eth0", spoofed)
	want := map[string]uint64{"from_pod spoofed_source": 1}
	n.AwaitDropped(t, n.A, want)
	attached := n.A.ProgramsOn(t, n.A1.Pair.HostIndex)
	n.A.Close(t)

	n.A.Do(t, func() (err error) {
		n.A.D, err = harness.Open(n.A.Cfg, n.A.ProgramsHere(), fixtures.TestLog(t))
		n.A.D.Objects.Tcx = n.A.D.Objects.Tcx && !legacy
		return err
	})
	if got := n.A.Dropped(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counters after adoption: %v, expected %v", got, want)
	}
	if changed, err := n.A.D.Endpoints.Sync(n.A.Endpoints()); changed != 0 || err != nil {
		t.Errorf("%d endpoints were not adopted: %v", changed, err)
	}
	if changed, err := n.A.D.Routes.Sync(n.A.Routes); changed != 0 || err != nil {
		t.Errorf("%d routes were not adopted: %v", changed, err)
	}
	n.A.Do(t, func() error { return n.A.D.AttachPod(n.A1.Pair.HostName, n.A1.Pair.HostIndex) })
	again := n.A.ProgramsOn(t, n.A1.Pair.HostIndex)
	if len(again) != len(attached) {
		t.Errorf("programs on the pod's device: %v before, %v after", attached, again)
	}
	if slices.Equal(again, attached) {
		t.Errorf("the programs %v were not replaced", attached)
	}
}

// adopt restarts the agent up to where it would attach programs.
func adopt(n *netlab.Node, t *testing.T) {
	t.Helper()
	n.Do(t, func() (err error) {
		n.D, err = harness.OpenVersion(t, n.Cfg, n.Version, nil)
		return err
	})
}

// Programs that Remove reports as removed no longer run.
func TestRemoveDetaches(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting})
	if on := n.A.ProgramsOn(t, n.A1.Pair.HostIndex); len(on) == 0 {
		t.Fatal("the pod's device has no program")
	}
	n.A.Close(t)
	n.A.Do(t, func() error {
		removed, err := attach.Remove(n.A.Cfg.Root)
		if want := "program from_pod of device " + n.A1.Pair.HostName; !slices.Contains(removed, want) {
			t.Errorf("removed are %q, want %q", removed, want)
		}
		return err
	})
	if on := n.A.ProgramsOn(t, n.A1.Pair.HostIndex); len(on) != 0 {
		t.Errorf("programs of the pod's device after Remove: %v", on)
	}
	adopt(n.A, t) // for the cleanup
}

// A version with other layouts starts under traffic, and the previous one returns. Nothing is lost, neither uses the
// other's entries, and the pins are always those of the running programs.
func TestVersionsUnderTraffic(t *testing.T) {
	for _, legacy := range harness.AttachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Masquerade: true, Policy: true}, Legacy: legacy})
			all := []*traffic{
				startTraffic(t, n.A1.Netns, n.B1.Netns, n.B1.Member, 4), startTraffic(t, n.A2.Netns, n.A1.Netns, n.A1.Member, 6),
			}
			before := pinsAt(t, n.A.Cfg.Root)
			for _, version := range []func(testing.TB, *ebpf.CollectionSpec){nextVersion, nil, nextVersion} {
				n.A.Close(t)
				n.A.Version = version
				adopt(n.A, t) // is killed before it commits
				if got := pinsAt(t, n.A.Cfg.Root); !slices.Equal(got, before) {
					t.Errorf("pins before Commit: %q, want %q", got, before)
				}
				if changed, err := n.A.D.Endpoints.Sync(n.A.Endpoints()); err != nil || changed != len(n.A.Endpoints()) {
					t.Errorf("%d endpoints of %d are written: the others are from the other version (%v)", changed, len(n.A.Endpoints()), err)
				}
				for _, tr := range all {
					tr.progress(t)
				}
				n.A.Close(t)
				n.A.Start(t, legacy)
				for _, tr := range all {
					tr.progress(t)
				}
				now := pinsAt(t, n.A.Cfg.Root)
				for _, name := range load.PinnedMaps {
					if !slices.Contains(now, n.A.D.Objects.Pins.Name(name)) {
						t.Errorf("%s is not pinned", n.A.D.Objects.Pins.Name(name))
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
			n.DropsNothing(t)

			// The next agent of the same version adopts its maps.
			n.A.Close(t)
			adopt(n.A, t)
			if changed, err := n.A.D.Endpoints.Sync(n.A.Endpoints()); changed != 0 || err != nil {
				t.Errorf("%d endpoints were not adopted: %v", changed, err)
			}
		})
	}
}
