package device

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestSetMTU(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	pair, cfg := newPod(t, node, pod, "a", pod4, pod6)
	devicetest.Inside(t, node, func() error {
		for _, netns := range []string{pod.Path(), "", "/run/netns/absent", node.Path()} {
			for _, mtu := range []int{9000, 1500, 1400, 1280, 9000, 1400} {
				if err := Pods.SetMTU(pair.HostIndex, netns, mtu); err != nil {
					return fmt.Errorf("to %d, found by %q: %w", mtu, netns, err)
				}
				if err := haveMTU(pair.HostIndex, mtu); err != nil {
					t.Errorf("found by %q: %v", netns, err)
				}
			}
		}
		// Nothing else of the pod has changed.
		if err := Pods.Check(pod.Path(), "eth0", cfg); err != nil {
			return err
		}
		return exchange(t, pod, pair)
	})
}

func haveMTU(hostIndex, mtu int) error {
	host, err := netlink.LinkByIndex(hostIndex)
	if err != nil {
		return err
	}
	pod, err := peerOf(hostIndex)
	if err != nil {
		return err
	}
	if host.Attrs().MTU != mtu || pod.MTU != mtu {
		return fmt.Errorf("MTU is %d on the host and %d in the pod, want %d", host.Attrs().MTU, pod.MTU, mtu)
	}
	return nil
}

// Two pods have devices with the same index: only the right one may change.
func TestSetMTUOfTwoPodsAlike(t *testing.T) {
	node, podA, podB := devicetest.NewNode(t), testenv.NewNetns(t), testenv.NewNetns(t)
	pairA, _ := newPod(t, node, podA, "a", pod4)
	pairB, _ := newPod(t, node, podB, "b", netip.MustParsePrefix("10.1.0.6/32"))
	if pairA.PodIndex != pairB.PodIndex {
		t.Fatalf("the pods' devices have the indexes %d and %d", pairA.PodIndex, pairB.PodIndex)
	}
	devicetest.Inside(t, node, func() error {
		// The path of A given for B must not lead into A.
		if err := Pods.SetMTU(pairB.HostIndex, podA.Path(), 1300); err != nil {
			return err
		}
		return errors.Join(haveMTU(pairA.HostIndex, 1400), haveMTU(pairB.HostIndex, 1300))
	})
}

func TestSetMTURejects(t *testing.T) {
	node, podA, podB := devicetest.NewNode(t), testenv.NewNetns(t), testenv.NewNetns(t)
	dual, _ := newPod(t, node, podA, "a", pod4, pod6)
	ipv4, _ := newPod(t, node, podB, "b", netip.MustParsePrefix("10.1.0.6/32"))
	devicetest.Inside(t, node, func() error {
		if err := Pods.SetMTU(dual.HostIndex, "", 1200); err == nil || !strings.Contains(err.Error(), "fd00:1::5") {
			t.Errorf("below the minimum of IPv6: %v", err)
		}
		if err := Pods.SetMTU(dual.HostIndex, "", 70000); err == nil {
			t.Error("no error above the maximum of veth")
		}
		if err := haveMTU(dual.HostIndex, 1400); err != nil {
			t.Error(err)
		}
		up, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		if err := Pods.SetMTU(up, "", 1400); err == nil {
			t.Error("no error for a device that is no pod's")
		}
		if err := Pods.SetMTU(4711, "", 1400); err == nil {
			t.Error("no error for no device")
		}
		// Without IPv6 there is no such limit, and IPv6 does not come back with the MTU.
		for _, mtu := range []int{1000, 1500} {
			if err := errors.Join(Pods.SetMTU(ipv4.HostIndex, "", mtu), haveMTU(ipv4.HostIndex, mtu)); err != nil {
				return err
			}
		}
		if err := noIPv6(ipv4.HostName); err != nil {
			t.Error(err)
		}
		return podB.Do(func(ns.NetNS) error { return noIPv6("eth0") })
	})
}

func noIPv6(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	addresses, err := netlink.AddrList(link, unix.AF_INET6)
	if err != nil || len(addresses) == 0 {
		return err
	}
	return fmt.Errorf("%s has %v", name, addresses)
}

// Only an open file holds the pod's namespace: its mount is gone and it has no process.
func TestSetMTUOfUnreachablePod(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	pair, _ := newPod(t, node, pod, "a", pod4)
	if err := unix.Unmount(pod.Path(), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	devicetest.Inside(t, node, func() error {
		if err := Pods.SetMTU(pair.HostIndex, pod.Path(), 1300); !errors.Is(err, ErrPodUnreachable) {
			t.Errorf("got %v", err)
		}
		return haveMTU(pair.HostIndex, 1400)
	})
}
