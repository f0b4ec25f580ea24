package main

import (
	"fmt"
	"sync"
	"time"
)

// answerTime is how long an answer may take; what has none by then has failed. It is no measure of the network: processes wait for
// their turn on a busy machine. What is lost is found by itself, however long one waits: over UDP nothing is sent twice.
const answerTime = 20 * time.Second

// clock is how times are printed: the logs of agents are read beside them.
const clock = "15:04:05.000"

// progress is what a load has done so far. It may be used from several goroutines.
type progress struct {
	mu    sync.Mutex
	state loadReport
}

// done counts something that took this long.
func (p *progress) done(amount int64, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Done += amount
	p.state.Slowest = max(p.state.Slowest, took)
}

// fail notes what went wrong, with the time.
func (p *progress) fail(err error) {
	const enough = 10
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.state.Errors) < enough {
		p.state.Errors = append(p.state.Errors, fmt.Sprintf("%s: %v", time.Now().Format(clock), err))
	}
}

func (p *progress) report() loadReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}
