package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress follows what all machines do. What their tests say is printed only when a machine has ended, since one that crashed runs again:
// until then, a line a minute says that they are alive, and where they are.
type progress struct {
	mu       sync.Mutex
	now      func() time.Time
	began    time.Time
	waiting  int
	machines []*machineProgress
}

// machineProgress is where one machine is.
type machineProgress struct {
	p         *progress
	name      string
	began     time.Time
	dir, test string // of the test that was heard of last; empty while the machine boots
	testBegan time.Time
	ended     int
}

func newProgress(machines int) *progress {
	return &progress{now: time.Now, began: time.Now(), waiting: machines}
}

// begin follows one more machine, until the returned function is called.
func (p *progress) begin(name string) (m *machineProgress, end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m = &machineProgress{p: p, name: name, began: p.now()}
	p.machines = append(p.machines, m)
	return m, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, other := range p.machines {
			if other == m {
				p.machines = append(p.machines[:i], p.machines[i+1:]...)
				return
			}
		}
	}
}

// started notes that a machine waits no more.
func (p *progress) started() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
}

// follow reads what init.sh writes, line by line, and hands all of it on.
func (m *machineProgress) follow(r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			m.hear(line)
			if _, writeErr := io.WriteString(in, line); writeErr != nil {
				_, _ = io.Copy(io.Discard, r) // nobody listens any more; the machine must not be held up by it
				return
			}
			if err != nil {
				in.CloseWithError(err)
				return
			}
		}
	}()
	return out
}

// hear takes note of one line, of which the testing package marks its own by the byte 0x16.
func (m *machineProgress) hear(line string) {
	words := strings.Fields(strings.ReplaceAll(line, "\x16", ""))
	if len(words) < 3 {
		return
	}
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	test, _, sub := strings.Cut(words[2], "/")
	switch words[0] + " " + words[1] {
	case "@vm begin":
		m.dir, m.test = words[2], ""
	case "=== RUN", "=== CONT":
		if test != m.test {
			m.test, m.testBegan = test, m.p.now()
		}
	case "--- PASS:", "--- FAIL:", "--- SKIP:":
		if !sub {
			m.ended++
		}
	}
}

// String is the line about the machines.
func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, m := range p.machines {
		where := fmt.Sprintf("boots for %.0f s", p.now().Sub(m.began).Seconds())
		if m.test != "" {
			where = fmt.Sprintf("%d tests ended, %s %s for %.0f s", m.ended, m.dir, m.test, p.now().Sub(m.testBegan).Seconds())
		}
		all = append(all, m.name+": "+where)
	}
	if p.waiting > 0 {
		all = append(all, fmt.Sprintf("%d more wait", p.waiting))
	}
	return fmt.Sprintf("vm: %.0f min: %s", p.now().Sub(p.began).Minutes(), strings.Join(all, " · "))
}

// tell writes that line as often as every says, until the returned function is called.
func (p *progress) tell(w io.Writer, every time.Duration) (stop func()) {
	done := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				fmt.Fprintln(w, p)
			}
		}
	})
	return func() {
		close(done)
		told.Wait()
	}
}
