package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// pulse sees to it that something is printed once a minute at least: who waits, and the machinery that stops what is silent, can tell a long
// test from one that hangs.
type pulse struct {
	mu   sync.Mutex
	last time.Time // when something was printed
	now  func() time.Time
}

func newPulse() *pulse { return &pulse{last: time.Now(), now: time.Now} }

// through gives a writer that notes whatever is written to w.
func (p *pulse) through(w io.Writer) io.Writer { return pulsed{p, w} }

type pulsed struct {
	p *pulse
	w io.Writer
}

func (w pulsed) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.last = w.p.now()
	return w.w.Write(b)
}

// quiet tells whether nothing was printed for so long.
func (p *pulse) quiet(long time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now().Sub(p.last) >= long
}

// beat prints what say gives whenever nothing else was printed for so long, until the returned function is called. w is one of p.through.
func (p *pulse) beat(w io.Writer, long time.Duration, say func() string) (stop func()) {
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(long / 10)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if p.quiet(long) {
					fmt.Fprintln(w, say())
				}
			}
		}
	})
	return func() {
		close(done)
		ended.Wait()
	}
}
