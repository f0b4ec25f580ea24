package round

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress shows a person how far a run is. On a terminal it keeps one line up to date; elsewhere it writes a line for
// each step.
type Progress struct {
	w        io.Writer
	terminal bool
	now      func() time.Time
	started  time.Time
	planned  time.Duration // of the whole run
	done     time.Duration // of the plan
	width    int           // of the line that stands on the terminal
}

// NewProgress begins the clock of a run that was planned to take so long.
func NewProgress(w io.Writer, terminal bool, planned time.Duration) *Progress {
	return &Progress{w: w, terminal: terminal, now: time.Now, started: time.Now(), planned: planned}
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

// Status shows what is being done on a terminal.
func (p *Progress) Status(format string, args ...any) {
	if !p.terminal {
		return
	}
	share := 0
	if p.planned > 0 {
		share = int(100 * p.done / p.planned)
	}
	p.line(fmt.Sprintf("%3d %%  %s left  %s", share, p.remaining().Round(time.Second), fmt.Sprintf(format, args...)))
}

// line replaces the line that stands on the terminal.
func (p *Progress) line(text string) {
	const widest = 100
	if r := []rune(text); len(r) > widest {
		text = string(r[:widest])
	}
	width := len([]rune(text))
	fmt.Fprintf(p.w, "\r%s%s", text, strings.Repeat(" ", max(0, p.width-width)))
	p.width = width
}

// Note writes a line that stays.
func (p *Progress) Note(format string, args ...any) {
	p.Clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// Step writes a line that stays only where no line is kept up to date.
func (p *Progress) Step(format string, args ...any) {
	if p.terminal {
		p.Status(format, args...)
		return
	}
	fmt.Fprintf(p.w, "[%s left] %s\n", p.remaining().Round(time.Second), fmt.Sprintf(format, args...))
}

// Clear removes the line that stands on the terminal.
func (p *Progress) Clear() {
	if p.terminal && p.width > 0 {
		p.line("")
		fmt.Fprint(p.w, "\r")
		p.width = 0
	}
}
