package agent

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

// Nodes get what the kernel knows of their peers. The agent's own state, which others read, does not change.
func TestWithPeers(t *testing.T) {
	known, unknown := wireguard.Key{1}, wireguard.Key{2}
	own := &agentapi.NodeEncryption{PublicKey: known.String()}
	nodes := []agentapi.RemoteNode{
		{Name: "a", Encryption: own},
		{Name: "b", Encryption: &agentapi.NodeEncryption{PublicKey: unknown.String()}},
		{Name: "c", Encryption: &agentapi.NodeEncryption{Pending: "it has no key"}},
		{Name: "d"},
	}
	withPeers(nodes, map[wireguard.Key]wireguard.State{known: {
		Endpoint: netip.MustParseAddrPort("192.0.2.1:28781"), Handshake: time.Unix(1000, 0), Received: 7, Sent: 9,
	}})
	want := []agentapi.RemoteNode{
		{Name: "a", Encryption: &agentapi.NodeEncryption{
			PublicKey: known.String(), Endpoint: "192.0.2.1:28781", LastHandshake: "1970-01-01T00:16:40Z", ReceivedBytes: 7, SentBytes: 9,
		}},
		{Name: "b", Encryption: &agentapi.NodeEncryption{PublicKey: unknown.String()}},
		{Name: "c", Encryption: &agentapi.NodeEncryption{Pending: "it has no key"}},
		{Name: "d"},
	}
	if difference := cmp.Diff(want, nodes); difference != "" {
		t.Errorf("nodes (-want +got):\n%s", difference)
	}
	if *own != (agentapi.NodeEncryption{PublicKey: known.String()}) {
		t.Errorf("the agent's own state is %+v", own)
	}
}

// Each peer counts once, and the labels are always the same three.
func TestByHandshake(t *testing.T) {
	now := time.Unix(10000, 0)
	got := byHandshake(map[wireguard.Key]wireguard.State{
		{1}: {}, {2}: {Handshake: now.Add(-handshakeRecent)}, {3}: {Handshake: now.Add(-handshakeRecent - 1)}, {4}: {Handshake: now},
	}, now)
	if want := map[string]int{"recent": 2, "old": 1, "none": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := byHandshake(nil, now); len(got) != 3 {
		t.Errorf("without peers: %v", got)
	}
}
