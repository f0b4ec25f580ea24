package nodeport

import (
	"context"
	"slices"
)

// The search for the highest rate that loses less than a bound.
const (
	lossBound = 0.001
	// steps is how often the interval is halved: to about a hundredth of the rate at saturation.
	steps = 6
	// lowest is the share of the rate at saturation at which the search begins; where that loses too much, it begins at
	// half of it, and so on, so many times.
	lowest  = 0.25
	lowered = 3
	// tries is how often a rate may be offered until it is believed to lose too much, or not to be made by the
	// generator. A ring of a veth pair is full within a millisecond: whoever takes the CPU for that long once would
	// decide the whole search.
	tries = 3
)

// search finds the highest rate, up to top, at which try loses no more than the bound, by halving the interval. It
// gives 0 where even the lowest share of top loses more.
func search(ctx context.Context, top float64, try func(rate float64) (loss float64, err error)) (rate float64, err error) {
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
	switch ok, err := carries(top); {
	case err != nil:
		return 0, err
	case ok:
		return top, nil
	}
	low, high := top*lowest, top
	for i := 0; ; i++ {
		ok, err := carries(low)
		if err != nil {
			return 0, err
		}
		if ok {
			break
		}
		if i == lowered {
			return 0, nil
		}
		low, high = low/2, low
	}
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

// median is the middle of an odd number of values.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
