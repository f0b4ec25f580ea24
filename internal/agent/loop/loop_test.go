package loop

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Requests before a round coalesce; requests during a round or its pause are the next round.
func TestWakeIsCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := 0
		l := Loop{Beat: &Beat{}, Wake: NewSignal(), Work: func() { rounds++; time.Sleep(time.Second) }, Pause: func() time.Duration { return time.Second }}
		l.Wake.Set()
		l.Wake.Set()
		go func() { _ = l.Run(t.Context()) }()
		time.Sleep(500 * time.Millisecond)
		l.Wake.Set()
		time.Sleep(time.Second)
		l.Wake.Set()
		synctest.Wait()
		if rounds != 1 {
			t.Errorf("%d rounds before the pause has ended, want 1", rounds)
		}
		time.Sleep(time.Hour)
		if rounds != 2 {
			t.Errorf("%d rounds, want 2", rounds)
		}
	})
}

// Ticks come at their intervals, In moves the next one, and Within only brings it forward.
func TestTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var regular, moved, once []time.Duration
		note := func(all *[]time.Duration) { *all = append(*all, time.Since(start)) }
		other, single := &Tick{Every: time.Minute}, &Tick{}
		other.Do = func(time.Time) { note(&moved); other.In(10 * time.Second) }
		single.Do = func(time.Time) { note(&once) }
		single.Within(8 * time.Second)
		single.Within(5 * time.Second)
		single.Within(7 * time.Second)
		l := Loop{Beat: &Beat{}, Ticks: []*Tick{{Every: 30 * time.Second, Do: func(time.Time) { note(&regular) }}, other, single}}
		go func() { _ = l.Run(t.Context()) }()
		time.Sleep(85 * time.Second)
		for name, c := range map[string]struct{ got, want []time.Duration }{
			"regular": {regular, []time.Duration{30 * time.Second, 60 * time.Second}},
			"moved":   {moved, []time.Duration{60 * time.Second, 70 * time.Second, 80 * time.Second}},
			"once":    {once, []time.Duration{5 * time.Second}},
		} {
			if !slices.Equal(c.got, c.want) {
				t.Errorf("%s: at %v, want %v", name, c.got, c.want)
			}
		}
	})
}

// Events are executed in order, each in a round of its own.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan func())
		l := Loop{Beat: &Beat{}, Events: events}
		go func() { _ = l.Run(t.Context()) }()
		var done []int
		for i := range 3 {
			events <- func() {
				if l.Beat.since.Load() == nil {
					t.Error("an event is no round")
				}
				done = append(done, i)
			}
		}
		synctest.Wait()
		if !slices.Equal(done, []int{0, 1, 2}) {
			t.Errorf("done: %v", done)
		}
	})
}
