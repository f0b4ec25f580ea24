package ippools

import (
	"net"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// Only what a pool wants probed is probed, where there is somebody to ask.
func TestProbeWhere(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	wanted := &ippool.Pool{IPPool: &cluster.IPPool{Name: "office", Probe: true}}
	missing := prober(func(string) (netdev.Uplink, bool) { return netdev.Uplink{}, false })
	if _, err := missing.Probe(t.Context(), wanted, addr); !agentapi.HasCode(err, agentapi.CodeNotReady) {
		t.Errorf("without an uplink: %v", err)
	}
	if found, err := missing.Probe(t.Context(), &ippool.Pool{IPPool: &cluster.IPPool{Name: "office"}}, addr); found != "" || err != nil {
		t.Errorf("with spec.probe false: %q, %v", found, err)
	}
	bare := prober(func(string) (netdev.Uplink, bool) { return netdev.Uplink{Name: "tun0", Index: 1 << 30}, true })
	if found, err := bare.Probe(t.Context(), wanted, addr); found != "" || err != nil {
		t.Errorf("on a device without Ethernet: %q, %v", found, err)
	}
	gone := prober(func(string) (netdev.Uplink, bool) {
		return netdev.Uplink{Name: "up0", Index: 1 << 30, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, true
	})
	if _, err := gone.Probe(t.Context(), wanted, addr); err == nil {
		t.Error("a probe on a device that is gone finds nothing, without an error")
	}
}
