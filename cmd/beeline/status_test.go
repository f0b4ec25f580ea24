package main

import (
	"slices"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// Nodes with encryption have a row each, which says why a peer waits, or when it was heard of last.
func TestPeerRows(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	rows := peerRows([]agentapi.RemoteNode{
		{Name: "plain"},
		{Name: "fresh", Encryption: &agentapi.NodeEncryption{PublicKey: "K="}},
		{Name: "old", Encryption: &agentapi.NodeEncryption{PublicKey: "L=", Endpoint: "192.0.2.1:28781", LastHandshake: "2026-01-02T03:03:00Z", ReceivedBytes: 2048}},
		{Name: "waits", Encryption: &agentapi.NodeEncryption{Pending: "it has no key"}},
	}, now)
	want := [][]string{
		{"fresh", "-", "none yet", byteCount(0), byteCount(0), "K=", "-"},
		{"old", "192.0.2.1:28781", "1m5s ago", byteCount(2048), byteCount(0), "L=", "-"},
		{"waits", "-", "none yet", byteCount(0), byteCount(0), "-", "it has no key"},
	}
	if len(rows) != 1+len(want) {
		t.Fatalf("%q", rows)
	}
	for i, w := range want {
		if !slices.Equal(rows[1+i], w) {
			t.Errorf("%q, want %q", rows[1+i], w)
		}
	}
}
