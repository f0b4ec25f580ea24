package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device"
)

func (n *node) close(t *testing.T) {
	t.Helper()
	if err := n.d.Close(); err != nil {
		t.Fatal(err)
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
					"eth0": n.a.d.programsOfUplink(), n.a1.pair.HostName: n.a.d.programsOfPod(), n.a2.pair.HostName: n.a.d.programsOfPod(),
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
			if want := len(n.a.d.programsOfUplink()); listed != want || n.a.running(t, index) != want {
				t.Errorf("%d attachments and %d programs, expected %d", listed, n.a.running(t, index), want)
			}
			n.a.do(t, func() error { return n.a.d.Detach(name) })
			n.a.awaitNone(t, index)
		})
	}
}

// After Remove nothing of ours is left on any device, and nothing pinned.
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
			n.a.do(t, func() error { return unload(n.a.d) })
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
