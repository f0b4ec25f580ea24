package device

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// BenchmarkPod measures the device part of a CNI ADD and DEL: the device, its neighbours and routes, the pod's end, and the deletion.
func BenchmarkPod(b *testing.B) {
	node, pod := testenv.NewNetns(b), testenv.NewNetns(b)
	devicetest.Inside(b, node, func() error {
		for i := 0; b.Loop(); i++ {
			pair, err := Pods.Create(PodSpec{Kind: kind, ContainerID: fmt.Sprint(i), IfName: "eth0", Netns: pod.Path()})
			if err == nil {
				err = Pods.Open(pair.HostIndex)
			}
			if err != nil {
				return err
			}
			for _, prefix := range []netip.Prefix{pod4, pod6} {
				if err := neigh.SetPermanent(pair.HostIndex, prefix.Addr(), pair.PodMAC); err != nil {
					return err
				}
				if err := route.Add(route.Route{Prefix: prefix, Device: pair.HostIndex}); err != nil {
					return err
				}
			}
			cfg := PodConfig{MTU: 1400, Addresses: []netip.Prefix{pod4, pod6}, Gateways: []netip.Addr{gateway4, gateway6}, HostMAC: pair.HostMAC}
			if err := Pods.Configure(pod.Path(), "eth0", cfg); err != nil {
				return err
			}
			if err := Pods.Delete(pair.HostName); err != nil {
				return err
			}
		}
		return nil
	})
}
