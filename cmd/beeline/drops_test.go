package main

import (
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// Times are in UTC, as those of flows.
func TestDropLine(t *testing.T) {
	now := time.Date(2026, 11, 22, 1, 30, 0, 0, time.FixedZone("east", 2*60*60))
	got := dropLine(now, agentapi.Drop{Reason: "spoofed_source", Program: "from_pod", Meaning: "the source is another's", Packets: 9}, 3)
	if want := "23:30:00  +3  spoofed_source in from_pod: the source is another's"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
