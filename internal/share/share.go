// Package share divides a table among those who want entries of it, so that who wants most gives way first.
package share

import "slices"

// Limit is the most that each of some users may have of capacity: the largest limit at which all of them together, each with what it wants
// and no more than the limit, fit (max-min fairness). The result is never below 0; it is the largest wish where all fit.
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
