package reconcile

import (
	"errors"
	"fmt"
	"testing"
)

func TestParts(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	for want, err := range map[int]error{0: nil, 1: one, 2: errors.Join(one, two)} {
		if got := parts(err); len(got) != want {
			t.Errorf("%v has parts %v, want %d", err, got, want)
		}
	}
	if got := parts(fmt.Errorf("both: %w", errors.Join(one, two))); len(got) != 1 {
		t.Errorf("a wrapped error is split: %v", got)
	}
}
