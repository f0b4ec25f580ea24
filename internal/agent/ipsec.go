package agent

import (
	"fmt"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/beeline-cni/beeline/internal/agent/ipseckeys"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device/encrypted"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
)

// withTunnels adds what the tunnels of IPsec have carried to the nodes. They are the caller's; what they point to is not.
func withTunnels(nodes []agentapi.RemoteNode, tunnels map[string]ipseckeys.Tunnel, carried map[netip.Addr]map[uint32]ipsec.Traffic) {
	for i := range nodes {
		t, ok := tunnels[nodes[i].Name]
		if nodes[i].Encryption == nil || !ok {
			continue
		}
		with := *nodes[i].Encryption
		for _, in := range t.In {
			c := carried[t.Local][in.SPI]
			with.ReceivedBytes += int64(c.Bytes)
			with.RejectedPackets += c.Rejected
		}
		for _, out := range t.Out {
			c := carried[t.Remote][out.SPI]
			with.SentBytes += int64(c.Bytes)
			with.SentPackets = max(with.SentPackets, c.Packets)
		}
		nodes[i].Encryption = &with
	}
}

// tunnels are those of IPsec, by the name of the peer.
func (a *Agent) tunnels() map[string]ipseckeys.Tunnel {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reconciler.Status().Desired.Encryption.Tunnels
}

// collectIPsec collects what the kernel knows of the XFRM interface.
func (a *Agent) collectIPsec(out chan<- prometheus.Metric, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	peers := prometheus.NewDesc("beeline_ipsec_peers", "Other nodes that packets are encrypted to with IPsec, by the generation of the key.", []string{"generation"}, nil)
	received, sent, err := encrypted.Traffic(ipsec.Name)
	if err != nil {
		out <- prometheus.NewInvalidMetric(peers, err)
		return
	}
	byGeneration := map[ipseckeys.Generation]int{}
	for _, t := range a.tunnels() {
		byGeneration[t.Generation]++
	}
	for g, n := range byGeneration {
		gauge(peers, float64(n), fmt.Sprint(g))
	}
	counter(prometheus.NewDesc("beeline_ipsec_received_bytes_total", "Bytes of packets that IPsec has decrypted.", nil, nil), float64(received))
	counter(prometheus.NewDesc("beeline_ipsec_sent_bytes_total", "Bytes of packets that IPsec has encrypted.", nil, nil), float64(sent))
}
