package packetgen

import (
	"math"
	"testing"
	"time"
)

func TestBounds(t *testing.T) {
	for _, test := range []struct {
		load Load
		want runBounds
	}{
		{Load{For: time.Second}, runBounds{0, 1e9, math.MaxUint64}},
		{Load{Rate: 1e6, For: time.Millisecond}, runBounds{1000 * fraction, 1e6, math.MaxUint64}},
		// A third of a microsecond is no whole number of nanoseconds.
		{Load{Rate: 3e6, For: time.Second, Count: 7}, runBounds{341333, 1e9, 7}},
	} {
		if got := test.load.bounds(); got != test.want {
			t.Errorf("%+v: %+v, want %+v", test.load, got, test.want)
		}
	}
}

func TestBuffers(t *testing.T) {
	full := Load{For: 100 * time.Millisecond}
	if got := full.buffers(0, 0); got < 1e6 {
		t.Errorf("%d buffers for 100 ms at full speed: a fast machine would run out of them", got)
	}
	if got := full.buffers(0, time.Second); got != 1 {
		t.Errorf("%d buffers after the end, want 1", got)
	}
	counted := Load{For: time.Second, Count: 1000}
	if got := counted.buffers(400, time.Millisecond); got != 600 {
		t.Errorf("%d buffers for 600 frames that are left", got)
	}
	paced := Load{For: time.Second, Rate: 10, Count: 1000}
	if got := paced.buffers(0, 0); got < 1e6 {
		t.Errorf("%d buffers with a rate: most of them are given back unused", got)
	}
	paced = Load{For: time.Hour, Rate: 1000, Count: 1000}
	if got := time.Duration(paced.buffers(900, 0)) * spareCost; got > 101*time.Millisecond {
		t.Errorf("buffers for %v at least, and the last 100 frames take 100 ms", got)
	}
	if got := (Load{For: time.Hour}).buffers(0, 0); got != math.MaxUint32 {
		t.Errorf("%d buffers for an hour, want as many as a call can have", got)
	}
}

func TestOffered(t *testing.T) {
	if o := (Load{For: time.Second}).offered(runState{Last: 9e8, Sent: 500}); o.Rate() != 500 {
		t.Errorf("ended by time: %v frames per second, want 500", o.Rate())
	}
	if o := (Load{For: time.Second, Count: 500}).offered(runState{Last: 5e8, Sent: 500}); o.Rate() != 1000 {
		t.Errorf("ended by count: %v frames per second, want 1000", o.Rate())
	}
}
