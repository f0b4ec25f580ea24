package packetgen

import (
	"math"
	"time"
)

// Load is how many frames to offer, and for how long.
type Load struct {
	// Rate in frames per second; 0 is as fast as it goes.
	Rate float64
	// For is how long.
	For time.Duration
	// Count ends it earlier, after so many frames; 0 does not.
	Count uint64
}

// fraction is how many parts the program divides a nanosecond into, so that rates of millions are met exactly.
const fraction = 1024

// bounds are the load as the program reads it.
func (l Load) bounds() runBounds {
	b := runBounds{Span: uint64(l.For.Nanoseconds()), Limit: l.Count}
	if l.Rate > 0 {
		b.Interval = uint64(math.Round(1e9 * fraction / l.Rate))
	}
	if b.Limit == 0 {
		b.Limit = math.MaxUint64
	}
	return b
}

// buffers is how many the next system call has, when so much of the load is done.
func (l Load) buffers(sent uint64, elapsed time.Duration) uint32 {
	left, cost := max(l.For-elapsed, 0), frameCost
	if l.Rate > 0 {
		cost = spareCost
	}
	if l.Rate > 0 && l.Count > 0 {
		left = min(left, time.Duration(float64(l.Count-sent)/l.Rate*float64(time.Second)))
	}
	n := uint64(left/cost) + 1
	if l.Rate == 0 && l.Count > 0 {
		n = min(n, l.Count-sent) // each of them becomes a frame
	}
	return uint32(min(n, math.MaxUint32))
}

// runBounds is the program's variable run.
type runBounds struct{ Interval, Span, Limit uint64 }

// runState is the program's variable state.
type runState struct{ Epoch, Due, Last, Sent uint64 }

// Offered is what was offered: frames handed to the device, among them those that found no room in the ring at its
// other end.
type Offered struct {
	Frames uint64
	// Took is the time from the first frame to the end of the load.
	Took time.Duration
}

// Rate is frames per second.
func (o Offered) Rate() float64 {
	if o.Took <= 0 {
		return 0
	}
	return float64(o.Frames) / o.Took.Seconds()
}

// offered reads the outcome of a load that is at its end: by its count, or by its time.
func (l Load) offered(s runState) Offered {
	o := Offered{Frames: s.Sent, Took: l.For}
	if l.Count > 0 && s.Sent >= l.Count {
		o.Took = time.Duration(s.Last)
	}
	return o
}
