package attach_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/device"
)

func attachments(n *netlab.Node, t *testing.T) []attach.Attachment {
	t.Helper()
	all, err := n.D.Attachments()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b attach.Attachment) int {
		return slices.Compare([]string{a.Device, a.Program}, []string{b.Device, b.Program})
	})
	return all
}

// In every configuration the listed, the pinned and the running programs are the same.
func TestAttachments(t *testing.T) {
	for _, legacy := range harness.AttachForms(t) {
		for _, cfg := range fixtures.EveryConfig() {
			t.Run(fmt.Sprintf("%s,legacy=%t", fixtures.CfgName(cfg), legacy), func(t *testing.T) {
				t.Parallel()
				n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg, Legacy: legacy})
				var want []attach.Attachment
				for name, programs := range map[string][]string{
					"eth0": n.A.D.ProgramsOfUplink(), n.A1.Pair.HostName: n.A.D.ProgramsOfPod(), n.A2.Pair.HostName: n.A.D.ProgramsOfPod(),
				} {
					for _, p := range programs {
						want = append(want, attach.Attachment{Device: name, Program: p})
					}
				}
				slices.SortFunc(want, func(a, b attach.Attachment) int {
					return slices.Compare([]string{a.Device, a.Program}, []string{b.Device, b.Program})
				})
				if got := attachments(n.A, t); !slices.Equal(got, want) {
					t.Errorf("attachments %v, expected %v", got, want)
				}
				for name, index := range map[string]int{"eth0": n.A.Uplink.Index, n.A1.Pair.HostName: n.A1.Pair.HostIndex} {
					wanted := 0
					for _, a := range want {
						if a.Device == name {
							wanted++
						}
					}
					if got := running(n.A, t, index); got != wanted {
						t.Errorf("the kernel runs %d programs on %s, expected %d", got, name, wanted)
					}
				}

				// Detach can be repeated, and affects one device.
				for range 2 {
					n.A.Do(t, func() error { return n.A.D.Detach(n.A1.Pair.HostName) })
					want = slices.DeleteFunc(want, func(a attach.Attachment) bool { return a.Device == n.A1.Pair.HostName })
					if got := attachments(n.A, t); !slices.Equal(got, want) {
						t.Errorf("attachments after Detach %v, expected %v", got, want)
					}
					awaitNone(n.A, t, n.A1.Pair.HostIndex)
				}
				if err := n.A.D.Detach("nosuchdevice"); err != nil {
					t.Errorf("detach from a device that does not exist: %v", err)
				}
			})
		}
	}
}

// awaitNone waits until a device has none of our programs.
func awaitNone(n *netlab.Node, t *testing.T, ifindex int) {
	t.Helper()
	for deadline := time.Now().Add(netlab.Patience); running(n, t, ifindex) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d programs are left on device %d", running(n, t, ifindex), ifindex)
		}
	}
}

// running counts our programs on a device, attached as links or as filters.
func running(n *netlab.Node, t *testing.T, ifindex int) int {
	t.Helper()
	return len(n.ProgramsOn(t, ifindex))
}

// A device that is deleted and created again with the same name is another device.
func TestDeviceRecreated(t *testing.T) {
	for _, legacy := range harness.AttachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting, Legacy: legacy})
			before := attachments(n.A, t)
			old := n.A1.Pair
			n.A.Do(t, func() error { return device.Pods.Delete(old.HostName) })
			if got := attachments(n.A, t); !slices.Equal(got, before) {
				t.Errorf("attachments without the device %v, expected %v: a deleted device must be listed", got, before)
			}
			n.A1.PlugIn(t)
			if n.A1.Pair.HostName != old.HostName || n.A1.Pair.HostIndex == old.HostIndex {
				t.Fatalf("the new device is %+v, the old one was %+v", n.A1.Pair, old)
			}
			if _, err := n.A.D.Endpoints.Sync(n.A.Endpoints()); err != nil {
				t.Fatal(err)
			}
			n.A.Do(t, func() error { return n.A.D.AttachPod(n.A1.Pair.HostName, n.A1.Pair.HostIndex) })
			if got := attachments(n.A, t); !slices.Equal(got, before) {
				t.Errorf("attachments %v, expected %v", got, before)
			}
			forwarded := n.Forwarded(t)
			n.CarriesPods(t)
			if by := n.Forwarded(t) - forwarded; by != 0 {
				t.Errorf("the stacks have forwarded %d packets", by)
			}

			// A deleted device is no longer listed after Detach.
			n.A.Do(t, func() error {
				return errors.Join(device.Pods.Delete(old.HostName), n.A.D.Detach(old.HostName))
			})
			for _, a := range attachments(n.A, t) {
				if a.Device == old.HostName {
					t.Errorf("%v is still listed", a)
				}
			}
		})
	}
}

// Device names may contain dots, names on BPF file systems may not.
func TestUplinkWithDot(t *testing.T) {
	for _, legacy := range harness.AttachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting, Legacy: legacy})
			const name = "up.1-0.x"
			var index int
			n.A.Do(t, func() error {
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
				return errors.Join(n.A.D.AttachUplink(name, index), n.A.D.AttachUplink(name, index))
			})
			listed := 0
			for _, a := range attachments(n.A, t) {
				if a.Device == name {
					listed++
				}
			}
			if want := len(n.A.D.ProgramsOfUplink()); listed != want || running(n.A, t, index) != want {
				t.Errorf("%d attachments and %d programs, expected %d", listed, running(n.A, t, index), want)
			}
			n.A.Do(t, func() error { return n.A.D.Detach(name) })
			awaitNone(n.A, t, index)
		})
	}
}

// After Remove no device has a program of ours, and nothing is pinned.
func TestUnload(t *testing.T) {
	for _, legacy := range harness.AttachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting, Legacy: legacy})
			indices := []int{n.A.Uplink.Index, n.A1.Pair.HostIndex, n.A2.Pair.HostIndex}
			for _, i := range indices {
				if running(n.A, t, i) == 0 {
					t.Errorf("no programs on device %d", i)
				}
			}
			n.A.Do(t, func() error { return harness.Unload(n.A.D) })
			for _, i := range indices {
				awaitNone(n.A, t, i)
			}
			for _, dir := range []string{load.MapDir(n.A.Cfg.Root), load.LinkDir(n.A.Cfg.Root)} {
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left: %v", dir, err)
				}
			}
			n.A.Start(t, legacy) // and a fresh start works
			n.CarriesPods(t)
		})
	}
}
