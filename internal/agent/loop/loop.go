// Package loop repeats the work of the agent's parts: soon after a change, again after a failure, and at intervals.
package loop

import (
	"context"
	"time"
)

// Signal requests a round of a loop. Several requests before the round coalesce.
type Signal chan struct{}

// NewSignal makes a Signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set requests a round. It does not block.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default: // the pending round sees the change
	}
}

// Loop does one kind of work, one round at a time. Everything but Wake and Events is used by Run only.
type Loop struct {
	Beat *Beat
	// Wake requests Work.
	Wake Signal
	Work func()
	// Events are executed in order, each as a round.
	Events <-chan func()
	// Ticks do work at their times.
	Ticks []*Tick
	// Pause is the time until the next round may begin, after each round: changes coalesce meanwhile. Nil means none.
	Pause func() time.Duration
}

// Tick does work at intervals, or once after In or Within.
type Tick struct {
	// Every is the interval; 0 means once.
	Every time.Duration
	Do    func(now time.Time)
	// due is the next time; zero if there is none.
	due time.Time
}

// In sets the next time, whatever it was; 0 means never.
func (t *Tick) In(wait time.Duration) {
	t.due = time.Time{}
	if wait > 0 {
		t.due = time.Now().Add(wait)
	}
}

// Within sets the next time unless an earlier one is set.
func (t *Tick) Within(wait time.Duration) {
	if at := time.Now().Add(wait); t.due.IsZero() || at.Before(t.due) {
		t.due = at
	}
}

// Run runs the loop until ctx ends. It returns nil, so that it fits into an errgroup.
func (l *Loop) Run(ctx context.Context) error {
	for _, t := range l.Ticks {
		if t.Every > 0 && t.due.IsZero() {
			t.In(t.Every)
		}
	}
	for {
		timer := time.NewTimer(l.untilTick())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-l.Wake:
			l.Beat.Round(l.Work)
		case event := <-l.Events:
			l.Beat.Round(event)
		case <-timer.C:
			l.tick(time.Now())
		}
		timer.Stop()
		if !l.pause(ctx) {
			return nil
		}
	}
}

// untilTick is the time until the first tick, a long time if there is none.
func (l *Loop) untilTick() time.Duration {
	wait := 24 * time.Hour
	for _, t := range l.Ticks {
		if !t.due.IsZero() {
			wait = min(wait, time.Until(t.due))
		}
	}
	return max(wait, 0)
}

// tick does the work of the ticks that are due.
func (l *Loop) tick(now time.Time) {
	for _, t := range l.Ticks {
		if t.due.IsZero() || now.Before(t.due) {
			continue
		}
		t.In(t.Every)
		l.Beat.Round(func() { t.Do(now) })
	}
}

func (l *Loop) pause(ctx context.Context) bool {
	if l.Pause == nil {
		return true
	}
	return Sleep(ctx, l.Pause())
}

// Sleep waits, and reports whether ctx has not ended meanwhile.
func Sleep(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}
