package agent

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/beeline-cni/beeline/internal/agent/ipseckeys"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/encrypted"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

// encryptionChoice says how many nodes are reached by encrypted packets, and why not all.
func (a *Agent) encryptionChoice(d node.Desired) agentapi.Choice {
	c := agentapi.Choice{Name: "encryption", Requested: string(a.config.Encryption), Selected: string(a.config.Encryption), Reason: "as requested"}
	if a.config.Encryption == node.EncryptionNone {
		return c
	}
	encrypted := 0
	for _, n := range d.Nodes {
		if n.Encryption != nil && n.Encryption.Pending == "" {
			encrypted++
		}
	}
	by := fmt.Sprintf("UDP port %d", a.config.WireGuardPort)
	if a.config.Encryption == node.EncryptionIPsec {
		by = "ESP"
	}
	c.Reason = fmt.Sprintf("packets to %d of %d other nodes, by %s", encrypted, len(d.Nodes), by)
	if !a.config.EncryptionStrict {
		c.Reason += "; to and from the others in plaintext"
	}
	if d.Encryption.Missing != nil {
		c.Reason = "packets to other nodes are dropped: " + d.Encryption.Missing.Error()
	}
	return c
}

// withPeers adds what the kernel knows of peers to the nodes. They are the caller's; what they point to is not.
func withPeers(nodes []agentapi.RemoteNode, states map[wireguard.Key]wireguard.State) {
	for i := range nodes {
		e := nodes[i].Encryption
		if e == nil {
			continue
		}
		key, err := wgtypes.ParseKey(e.PublicKey)
		if err != nil {
			continue
		}
		s, ok := states[key]
		if !ok {
			continue
		}
		with := *e
		with.ReceivedBytes, with.SentBytes = s.Received, s.Sent
		if s.Endpoint.IsValid() {
			with.Endpoint = s.Endpoint.String()
		}
		if !s.Handshake.IsZero() {
			with.LastHandshake = s.Handshake.UTC().Format(time.RFC3339)
		}
		nodes[i].Encryption = &with
	}
}

// withTraffic adds what the kernel knows of peers to the nodes.
func (a *Agent) withTraffic(nodes []agentapi.RemoteNode, tunnels map[string]ipseckeys.Tunnel) error {
	switch a.config.Encryption {
	case node.EncryptionWireGuard:
		states, err := wireguard.States()
		withPeers(nodes, states)
		return err
	case node.EncryptionIPsec:
		carried, err := ipsec.Traffics()
		withTunnels(nodes, tunnels, carried)
		return err
	}
	return nil
}

// collectEncryption collects what the kernel knows of the device that encrypts.
func (a *Agent) collectEncryption(out chan<- prometheus.Metric, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	switch a.config.Encryption {
	case node.EncryptionWireGuard:
		collectWireGuard(out, gauge, counter)
	case node.EncryptionIPsec:
		a.collectIPsec(out, gauge, counter)
	}
}

// handshakeRecent is how old the last handshake with a peer is at most while packets are sent: WireGuard makes another one
// after 120 seconds, and uses no key for longer than 180 (WireGuard whitepaper, 6.1).
const handshakeRecent = 180 * time.Second

// collectWireGuard collects what the kernel knows of WireGuard's device and peers.
func collectWireGuard(out chan<- prometheus.Metric, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	peers := prometheus.NewDesc("beeline_wireguard_peers", "Other nodes as peers of WireGuard, by their last handshake: recent (while packets are sent), old, or none yet.", []string{"handshake"}, nil)
	states, err := wireguard.States()
	received, sent, errTraffic := encrypted.Traffic(wireguard.Name)
	if err := errors.Join(err, errTraffic); err != nil {
		out <- prometheus.NewInvalidMetric(peers, err)
		return
	}
	for handshake, n := range byHandshake(states, time.Now()) {
		gauge(peers, float64(n), handshake)
	}
	counter(prometheus.NewDesc("beeline_wireguard_received_bytes_total", "Bytes of packets that WireGuard has decrypted.", nil, nil), float64(received))
	counter(prometheus.NewDesc("beeline_wireguard_sent_bytes_total", "Bytes of packets that WireGuard has encrypted.", nil, nil), float64(sent))
}

// byHandshake counts peers by the age of their last handshake.
func byHandshake(states map[wireguard.Key]wireguard.State, now time.Time) map[string]int {
	n := map[string]int{"recent": 0, "old": 0, "none": 0}
	for _, s := range states {
		switch {
		case s.Handshake.IsZero():
			n["none"]++
		case now.Sub(s.Handshake) <= handshakeRecent:
			n["recent"]++
		default:
			n["old"]++
		}
	}
	return n
}

// annotations are what this node's Node has to have.
func (a *Agent) annotations() map[string]string {
	announced := a.announced.Load()
	if announced == nil {
		return nil
	}
	all := announced.Annotations()
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// announce tells other nodes what they need to encrypt to this one, by the API server. Without one, the Node's manifest has it.
func (a *Agent) announce(announced cluster.Announced) {
	a.announced.Store(&announced)
	if a.reporter != nil {
		a.reporter.Announce(announced)
	}
}
