package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// Only who has printed nothing for long is quiet.
func TestPulseIsQuiet(t *testing.T) {
	now := time.Unix(0, 0)
	p := &pulse{last: now, now: func() time.Time { return now }}
	var out bytes.Buffer
	w := p.through(&out)
	now = now.Add(59 * time.Second)
	if p.quiet(time.Minute) {
		t.Error("quiet after 59 s")
	}
	now = now.Add(time.Second)
	if !p.quiet(time.Minute) {
		t.Error("not quiet after 60 s")
	}
	if _, err := io.WriteString(w, "said"); err != nil || out.String() != "said" {
		t.Errorf("%q is written: %v", out.String(), err)
	}
	if p.quiet(time.Minute) {
		t.Error("quiet after it has printed")
	}
}

// A silent command is told of, with the test that it is at.
func TestPulseBeats(t *testing.T) {
	tally := newTally(io.Discard, false)
	if err := tally.read(strings.NewReader(crashed)); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	p := newPulse()
	stop := p.beat(p.through(w), 10*time.Millisecond, func() string { return "..." + tally.running() })
	said := make([]byte, 200)
	n, err := r.Read(said)
	if want := "..., c TestHang (0 tests have ended)"; err != nil || string(said[:n]) != want+"\n" && string(said[:n]) != want {
		t.Errorf("%q: %v", said[:n], err)
	}
	r.Close()
	stop()
}
