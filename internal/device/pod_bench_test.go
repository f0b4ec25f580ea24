package device

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// BenchmarkPod is the device's share of a CNI ADD and DEL: pair, neighbours, routes, the pod's inside, and
// all of it gone again.
func BenchmarkPod(b *testing.B) {
	node, pod := testenv.NewNetns(b), testenv.NewNetns(b)
	inside(b, node, func() error {
		for i := 0; b.Loop(); i++ {
			pair, err := CreatePair(PairSpec{ContainerID: fmt.Sprint(i), IfName: "eth0", Netns: pod.Path()})
			if err != nil {
				return err
			}
			for _, prefix := range []netip.Prefix{pod4, pod6} {
				if err := SetNeighbour(pair.HostIndex, prefix.Addr(), pair.PodMAC); err != nil {
					return err
				}
				if err := AddRoute(Route{Prefix: prefix, Device: pair.HostIndex}); err != nil {
					return err
				}
			}
			cfg := PodConfig{MTU: 1400, Addresses: []netip.Prefix{pod4, pod6}, Gateways: []netip.Addr{gateway4, gateway6}, HostMAC: pair.HostMAC}
			if err := ConfigurePod(pod.Path(), "eth0", cfg); err != nil {
				return err
			}
			if err := DeleteHost(pair.HostName); err != nil {
				return err
			}
		}
		return nil
	})
}
