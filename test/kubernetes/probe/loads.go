package main

import (
	"fmt"
	"sync"
	"time"
)

// answerTime is the reply timeout. It does not measure the network: processes wait for a CPU on a busy machine. Loss
// is found regardless: UDP is not retransmitted.
const answerTime = 20 * time.Second

// clock is the time format, that of the agents' logs.
const clock = "15:04:05.000"

// progress is what a load has done so far. It is safe for concurrent use.
type progress struct {
	mu    sync.Mutex
	state loadReport
}

// done counts one success and its duration.
func (p *progress) done(amount int64, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Done += amount
	p.state.Slowest = max(p.state.Slowest, took)
}

// fail records an error with its time.
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
