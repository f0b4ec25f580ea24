package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

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

func (n *node) close(t *testing.T) {
	t.Helper()
	if err := n.d.Close(); err != nil {
		t.Fatal(err)
	}
}

// The agent goes away and comes back, again and again, under traffic: nothing is lost. It
// comes back with another configuration each time.
func TestAdoptUnderTraffic(t *testing.T) {
	for _, legacy := range attachForms(t) {
		for _, family := range families {
			t.Run(fmt.Sprintf("legacy=%t/IPv%d", legacy, family), func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t, options{cfg: ebpfRouting, legacy: legacy})
				remote := startTraffic(t, n.a1.place, n.b1.place, n.b1.member, family)
				local := startTraffic(t, n.a2.place, n.a1.place, n.a1.member, family)
				for _, cfg := range []Config{{}, {EBPFRouting: true, Masquerade: true}, {Masquerade: true}, ebpfRouting} {
					for _, node := range []*node{n.a, n.b} {
						node.close(t)
						remote.progress(t) // without an agent
						node.cfg.EBPFRouting, node.cfg.Masquerade = cfg.EBPFRouting, cfg.Masquerade
						node.start(t, legacy)
						remote.progress(t)
						local.progress(t)
					}
				}
				remote.finish(t)
				local.finish(t)
				n.dropsNothing(t)
			})
		}
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
		n.a.d.tcx = n.a.d.tcx && !legacy
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
		n.d, err = open(n.cfg, nil, testLog(t))
		return err
	})
}

// programsOn gives the ids of the programs at ingress and egress of a device, as the kernel has them: tcx links, or
// our filters where the datapath uses those.
func (n *node) programsOn(t *testing.T, ifindex int) []ebpf.ProgramID {
	t.Helper()
	var all []ebpf.ProgramID
	n.do(t, func() error {
		if !n.d.tcx {
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

// A pinned map that does not fit any more is replaced, and not before Commit.
func TestIncompatibleMapIsReplaced(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: ebpfRouting})
	n.a.close(t)
	pin := filepath.Join(mapDir(n.a.cfg.Root), bpfMapEndpoints)
	if err := os.Remove(pin); err != nil {
		t.Fatal(err)
	}
	const earlier = 16 // bytes of an endpoint before it had its way
	outdated, err := ebpf.NewMap(&ebpf.MapSpec{Name: bpfMapEndpoints, Type: ebpf.Hash, KeySize: 16, ValueSize: earlier, MaxEntries: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer outdated.Close()
	if err := outdated.Pin(pin); err != nil {
		t.Fatal(err)
	}
	valueSize := func() uint32 {
		m, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return m.ValueSize()
	}

	remote := startTraffic(t, n.a1.place, n.b1.place, n.b1.member, 4)
	n.a.adopt(t)
	if valueSize() != earlier {
		t.Error("the pin was replaced before Commit")
	}
	remote.progress(t)
	n.a.close(t)
	n.a.start(t, false)
	if valueSize() != uint32(binary.Size(bpfEndpoint{})) {
		t.Error("the pin was not replaced by Commit")
	}
	remote.progress(t)
	remote.finish(t)

	// The next one finds what it wants.
	n.a.close(t)
	n.a.adopt(t)
	if changed, err := n.a.d.Endpoints.Sync(n.a.endpoints()); changed != 0 || err != nil {
		t.Errorf("%d endpoints were not adopted: %v", changed, err)
	}
}

func (n *node) attachments(t *testing.T) []Attachment {
	t.Helper()
	all, err := n.d.Attachments()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b Attachment) int {
		return slices.Compare([]string{a.Device, a.Program}, []string{b.Device, b.Program})
	})
	return all
}

// What is listed, what is pinned and what the kernel runs are the same, in every configuration.
func TestAttachments(t *testing.T) {
	for _, legacy := range attachForms(t) {
		for _, cfg := range everyConfig() {
			t.Run(fmt.Sprintf("%s,legacy=%t", cfgName(cfg), legacy), func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t, options{cfg: cfg, legacy: legacy})
				var want []Attachment
				for name, programs := range map[string][]string{
					"eth0": n.a.d.uplinkPrograms(), n.a1.pair.HostName: n.a.d.podPrograms(n.a1.pair.HostName), n.a2.pair.HostName: n.a.d.podPrograms(n.a2.pair.HostName),
				} {
					for _, p := range programs {
						want = append(want, Attachment{name, p})
					}
				}
				slices.SortFunc(want, func(a, b Attachment) int {
					return slices.Compare([]string{a.Device, a.Program}, []string{b.Device, b.Program})
				})
				if got := n.a.attachments(t); !slices.Equal(got, want) {
					t.Errorf("attachments %v, expected %v", got, want)
				}
				for name, index := range map[string]int{"eth0": n.a.uplink.Index, n.a1.pair.HostName: n.a1.pair.HostIndex} {
					wanted := 0
					for _, a := range want {
						if a.Device == name {
							wanted++
						}
					}
					if got := n.a.running(t, index); got != wanted {
						t.Errorf("the kernel runs %d programs on %s, expected %d", got, name, wanted)
					}
				}

				// Detach takes one device off, and can be repeated.
				for range 2 {
					n.a.do(t, func() error { return n.a.d.Detach(n.a1.pair.HostName) })
					want = slices.DeleteFunc(want, func(a Attachment) bool { return a.Device == n.a1.pair.HostName })
					if got := n.a.attachments(t); !slices.Equal(got, want) {
						t.Errorf("attachments after Detach %v, expected %v", got, want)
					}
					n.a.awaitNone(t, n.a1.pair.HostIndex)
				}
				if err := n.a.d.Detach("nosuchdevice"); err != nil {
					t.Errorf("detach from a device that does not exist: %v", err)
				}
			})
		}
	}
}

// awaitNone waits until no program of ours is on a device any more.
func (n *node) awaitNone(t *testing.T, ifindex int) {
	t.Helper()
	for deadline := time.Now().Add(patience); n.running(t, ifindex) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d programs are left on device %d", n.running(t, ifindex), ifindex)
		}
	}
}

// running counts our programs on a device, however they are attached.
func (n *node) running(t *testing.T, ifindex int) int {
	t.Helper()
	return len(n.programsOn(t, ifindex))
}

// A device that is deleted and made again under the same name is another device.
func TestDeviceRecreated(t *testing.T) {
	for _, legacy := range attachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, options{cfg: ebpfRouting, legacy: legacy})
			before := n.a.attachments(t)
			old := n.a1.pair
			n.a.do(t, func() error { return device.DeleteHost(old.HostName) })
			if got := n.a.attachments(t); !slices.Equal(got, before) {
				t.Errorf("attachments without the device %v, expected %v: a vanished device has to be seen", got, before)
			}
			n.a1.plugIn(t)
			if n.a1.pair.HostName != old.HostName || n.a1.pair.HostIndex == old.HostIndex {
				t.Fatalf("the new device is %+v, the old one was %+v", n.a1.pair, old)
			}
			if _, err := n.a.d.Endpoints.Sync(n.a.endpoints()); err != nil {
				t.Fatal(err)
			}
			n.a.do(t, func() error { return n.a.d.AttachPod(n.a1.pair.HostName, n.a1.pair.HostIndex) })
			if got := n.a.attachments(t); !slices.Equal(got, before) {
				t.Errorf("attachments %v, expected %v", got, before)
			}
			forwarded := n.forwarded(t)
			n.carriesPods(t)
			if by := n.forwarded(t) - forwarded; by != 0 {
				t.Errorf("the stacks have forwarded %d packets", by)
			}

			// Gone for good: Detach forgets it.
			n.a.do(t, func() error {
				return errors.Join(device.DeleteHost(old.HostName), n.a.d.Detach(old.HostName))
			})
			for _, a := range n.a.attachments(t) {
				if a.Device == old.HostName {
					t.Errorf("%v is still listed", a)
				}
			}
		})
	}
}

// Device names may hold dots, BPF file systems' names may not.
func TestUplinkWithDot(t *testing.T) {
	for _, legacy := range attachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, options{cfg: ebpfRouting, legacy: legacy})
			const name = "up.1-0.x"
			var index int
			n.a.do(t, func() error {
				veth := netlink.NewVeth(netlink.LinkAttrs{Name: name})
				veth.PeerName = "other"
				if err := netlink.LinkAdd(veth); err != nil {
					return err
				}
				dev, err := net.InterfaceByName(name)
				if err != nil {
					return err
				}
				index = dev.Index
				return errors.Join(n.a.d.AttachUplink(name, index), n.a.d.AttachUplink(name, index))
			})
			listed := 0
			for _, a := range n.a.attachments(t) {
				if a.Device == name {
					listed++
				}
			}
			if want := len(n.a.d.uplinkPrograms()); listed != want || n.a.running(t, index) != want {
				t.Errorf("%d attachments and %d programs, expected %d", listed, n.a.running(t, index), want)
			}
			n.a.do(t, func() error { return n.a.d.Detach(name) })
			n.a.awaitNone(t, index)
		})
	}
}

// After Unload nothing of ours is left on any device, and nothing pinned.
func TestUnload(t *testing.T) {
	for _, legacy := range attachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, options{cfg: ebpfRouting, legacy: legacy})
			indices := []int{n.a.uplink.Index, n.a1.pair.HostIndex, n.a2.pair.HostIndex}
			for _, i := range indices {
				if n.a.running(t, i) == 0 {
					t.Errorf("no programs on device %d", i)
				}
			}
			n.a.do(t, n.a.d.Unload)
			for _, i := range indices {
				n.a.awaitNone(t, i)
			}
			for _, dir := range []string{mapDir(n.a.cfg.Root), linkDir(n.a.cfg.Root)} {
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left: %v", dir, err)
				}
			}
			n.a.start(t, legacy) // and from nothing again
			n.carriesPods(t)
		})
	}
}
