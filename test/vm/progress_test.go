package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

// What the machines are at can be told at any time, and what they say goes on unchanged.
func TestProgress(t *testing.T) {
	now := time.Unix(0, 0)
	p := newProgress(3)
	p.now, p.began = func() time.Time { return now }, now
	p.started()
	one, endOne := p.begin("Linux 6.1 (1 of 2)")
	p.started()
	_, endTwo := p.begin("Linux 6.1 (2 of 2)")
	const said = "noise\n@vm begin internal/datapath\n\x16=== RUN   TestA\n\x16=== RUN   TestA/sub\n    \x16--- PASS: TestA/sub (0.00s)\n" +
		"\x16--- PASS: TestA (1.00s)\n\x16=== RUN   TestB\n\x16=== RUN   TestB/sub\ncut off"
	if passed, err := io.ReadAll(one.follow(strings.NewReader(said))); err != nil || string(passed) != said {
		t.Errorf("%q comes through: %v", passed, err)
	}
	now = now.Add(2 * time.Minute)
	want := "vm: 2 min: Linux 6.1 (1 of 2): 1 tests ended, internal/datapath TestB for 120 s · Linux 6.1 (2 of 2): boots for 120 s · 1 more wait"
	if p.String() != want {
		t.Errorf("says  %s\nwants %s", p, want)
	}
	endOne()
	p.started()
	endTwo()
	if want := "vm: 2 min: "; p.String() != want {
		t.Errorf("at the end: %s", p)
	}
}

// A line comes by itself.
func TestProgressTells(t *testing.T) {
	r, w := io.Pipe()
	p := newProgress(1)
	stop := p.tell(w, time.Millisecond)
	line := make([]byte, 200)
	n, err := r.Read(line)
	if err != nil || !strings.Contains(string(line[:n]), "1 more wait") {
		t.Errorf("%q: %v", line[:n], err)
	}
	r.Close()
	stop()
}
