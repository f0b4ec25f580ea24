// Package share divides the capacity of a table among its users, so that the largest demands are reduced first.
package share

import "slices"

// Limit is the max-min fair share: the largest limit at which the sum of all demands, each capped at the limit, fits
// the capacity. It is never below 0; where all demands fit, it is the largest one.
func Limit(capacity int, wanted []int) int {
	sorted := slices.Sorted(slices.Values(wanted))
	left := max(capacity, 0)
	for i, want := range sorted {
		each := left / (len(sorted) - i)
		if want > each {
			return each
		}
		left -= want
	}
	if len(sorted) == 0 {
		return left
	}
	return sorted[len(sorted)-1]
}
