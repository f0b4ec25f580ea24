package round

import (
	"fmt"
	"io"
	"time"
)

// Progress shows a person how far a run is, by a line for each step.
type Progress struct {
	w       io.Writer
	now     func() time.Time
	started time.Time
	planned time.Duration // of the whole run
	done    time.Duration // of the plan
}

// NewProgress begins the clock of a run that was planned to take so long.
func NewProgress(w io.Writer, planned time.Duration) *Progress {
	return &Progress{w: w, now: time.Now, started: time.Now(), planned: planned}
}

// Advance records that work planned to take so long is done.
func (p *Progress) Advance(d time.Duration) { p.done = min(p.done+d, p.planned) }

// extend adds work to the plan.
func (p *Progress) extend(d time.Duration) { p.planned += d }

// remaining corrects the plan by the pace so far, once a tenth of it is done.
func (p *Progress) remaining() time.Duration {
	left := p.planned - p.done
	if p.done*10 < p.planned {
		return left
	}
	pace := float64(p.now().Sub(p.started)) / float64(p.done)
	return time.Duration(float64(left) * pace)
}

// Note reports an event.
func (p *Progress) Note(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

// Step reports what is being done, and how long the rest takes.
func (p *Progress) Step(format string, args ...any) {
	p.Note("[%s left] %s", p.remaining().Round(time.Second), fmt.Sprintf(format, args...))
}
