package device

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// A second interface of a pod leads to its own networks, takes what is sent from its address, and leaves the rest to the first one.
func TestSecondInterface(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	newPod(t, node, pod, "a", pod4, pod6)
	cfg := PodConfig{
		Second: true, MTU: 1400, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.5/32"), netip.MustParsePrefix("2001:db8::5/128")},
		Gateways: []netip.Addr{gateway4, gateway6},
		Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64"), netip.MustParsePrefix("198.51.100.0/24")},
	}
	var host string
	add := func() error {
		pair, err := Pods.Create(PodSpec{Kind: kind, ContainerID: "a", IfName: "net1", Netns: pod.Path(), MTU: cfg.MTU})
		if err != nil {
			return err
		}
		if err := Pods.Open(pair.HostIndex); err != nil {
			return err
		}
		cfg.HostMAC, host = pair.HostMAC, pair.HostName
		for ifName, want := range map[string]bool{"eth0": false, "net1": true} {
			if second, err := Pods.IsSecond(pod.Path(), ifName); second != want || err != nil {
				return fmt.Errorf("%s is second: %t, error %w", ifName, second, err)
			}
		}
		if err := Pods.Configure(pod.Path(), "net1", cfg); err != nil {
			return err
		}
		return Pods.Check(pod.Path(), "net1", cfg)
	}
	devicetest.Inside(t, node, add)
	devicetest.Inside(t, pod, func() error {
		for _, c := range []struct{ from, to, device, source string }{
			{"", "203.0.113.1", "eth0", "10.1.0.5"},
			{"", "2001:db8:9::1", "eth0", "fd00:1::5"},
			{"", "192.0.2.77", "net1", "192.0.2.5"},
			{"", "198.51.100.7", "net1", "192.0.2.5"},
			{"", "2001:db8::77", "net1", "2001:db8::5"},
			{"192.0.2.5", "203.0.113.1", "net1", "192.0.2.5"},
			{"2001:db8::5", "2001:db8:9::1", "net1", "2001:db8::5"},
			{"10.1.0.5", "203.0.113.1", "eth0", "10.1.0.5"},
			{"10.1.0.5", "192.0.2.77", "eth0", "10.1.0.5"},
			{"fd00:1::5", "2001:db8::77", "eth0", "fd00:1::5"},
		} {
			got, err := netlink.RouteGetWithOptions(net.ParseIP(c.to), &netlink.RouteGetOptions{SrcAddr: net.ParseIP(c.from)})
			if err != nil {
				return fmt.Errorf("route from %q to %s: %w", c.from, c.to, err)
			}
			device, err := net.InterfaceByIndex(got[0].LinkIndex)
			if err != nil {
				return err
			}
			if device.Name != c.device || c.from == "" && got[0].Src.String() != c.source {
				t.Errorf("from %q to %s: by %s with source %s, want %s and %s", c.from, c.to, device.Name, got[0].Src, c.device, c.source)
			}
		}
		return nil
	})
	// DEL and a new ADD of this interface only: what the first left in the pod does not matter.
	devicetest.Inside(t, node, func() error {
		if err := Pods.Delete(host); err != nil {
			return err
		}
		return add()
	})
	devicetest.Inside(t, pod, func() error {
		rules, err := rtnl.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(unix.AF_INET) })
		if err != nil {
			return err
		}
		for _, r := range rules {
			if r.Table > secondTable {
				if err := netlink.RuleDel(&r); err != nil {
					return err
				}
			}
		}
		return nil
	})
	devicetest.Inside(t, node, func() error {
		if err := Pods.Check(pod.Path(), "net1", cfg); err == nil || !strings.Contains(err.Error(), "rule") {
			t.Errorf("without the rule: %v", err)
		}
		return nil
	})
}
