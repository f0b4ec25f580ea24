package nodeport

import (
	"context"
)

// The search for the highest rate that loses less than a bound.
const (
	lossBound = 0.001
	// steps is how often the interval is halved.
	steps = 8
	// tries is how often a rate may be offered until it is believed to lose too much, or not to be made by the
	// generator. A ring of a veth pair is full within a millisecond: whoever takes the CPU for that long once would
	// decide the whole search.
	tries = 3
)

// search finds the highest rate, up to top, at which try loses no more than the bound, by halving the interval. It
// gives 0 where even the lowest rate loses more.
func search(ctx context.Context, top float64, try func(rate float64) (loss float64, err error)) (float64, error) {
	carries := func(rate float64) (bool, error) {
		for range tries {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			if loss, err := try(rate); err != nil || loss <= lossBound {
				return err == nil, err
			}
		}
		return false, nil
	}
	if ok, err := carries(top); ok || err != nil {
		return top, err
	}
	low, high := 0.0, top
	for range steps {
		middle := (low + high) / 2
		ok, err := carries(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}
