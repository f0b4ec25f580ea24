package share

import "testing"

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		name     string
		capacity int
		wanted   []int
		want     int
	}{
		{"no user", 10, nil, 10},
		{"all fit", 10, []int{3, 7}, 7},
		{"the largest demand is reduced", 10, []int{2, 100, 3}, 5},
		{"two greedy ones share what the others leave", 10, []int{100, 2, 1000}, 4},
		{"less than one each", 2, []int{1, 1, 1}, 0},
		{"nothing", 0, []int{5}, 0},
		{"below nothing", -3, []int{5}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Limit(c.capacity, c.wanted)
			if got != c.want {
				t.Errorf("limit is %d, want %d", got, c.want)
			}
			sum := 0
			for _, w := range c.wanted {
				sum += min(w, got)
			}
			if sum > max(c.capacity, 0) {
				t.Errorf("together they have %d of %d", sum, c.capacity)
			}
		})
	}
}
