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
	// lowest is the share of the rate at saturation below which nothing is looked for.
	lowest = 0.25
)

// search finds the highest rate, up to top, at which try loses no more than the bound, by halving the interval. It gives
// 0 where even the lowest share of top loses more.
func search(ctx context.Context, top float64, try func(rate float64) (loss float64, err error)) (rate float64, err error) {
	carries := func(rate float64) (bool, error) {
		loss, err := try(rate)
		return loss <= lossBound, err
	}
	low, high := top*lowest, top
	for _, rate := range []float64{high, low} {
		switch ok, err := carries(rate); {
		case err != nil:
			return 0, err
		case ok && rate == high:
			return high, nil
		case !ok && rate == low:
			return 0, nil
		}
	}
	for range steps {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
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
