package comparison

import (
	"errors"
	"fmt"
)

// Outcome is what became of a condition for one figure.
type Outcome string

const (
	// Passed means that the figure is not beyond the limit, or that its interval includes the limit.
	Passed Outcome = "passed"
	// Failed means that the whole interval is beyond the limit.
	Failed Outcome = "failed"
	// Undecidable means that the runs have too few rounds for an interval.
	Undecidable Outcome = "undecidable"
)

// Check is what became of a condition for one change.
type Check struct {
	Condition string  `json:"condition"`
	Change    Change  `json:"change"`
	Value     Value   `json:"value"`
	Outcome   Outcome `json:"outcome"`
}

// String says what became of it: "tcp_rr.ratio<0.98: beeline: tcp_rr rate, cross-node, one-core: 0.951 (0.948–0.955)".
func (j Check) String() string {
	text := fmt.Sprintf("%s: %s: %s: %s", j.Condition, j.Outcome, j.Change, j.Value)
	if j.Outcome != Passed {
		text += ": " + j.reason()
	}
	return text
}

// reason says why the check fails.
func (j Check) reason() string {
	if j.Outcome == Undecidable {
		return "no interval: the runs have too few rounds"
	}
	return "the whole interval is beyond the limit"
}

// String is the median with its interval.
func (v Value) String() string {
	if v.Low == nil || v.High == nil {
		return fmt.Sprintf("%.3f", v.Median)
	}
	return fmt.Sprintf("%.3f (%.3f–%.3f)", v.Median, *v.Low, *v.High)
}

// Apply applies each condition to all changes that it is about. A condition that is about none is an error: it could not
// fail.
func Apply(changes []Change, conditions []Condition) ([]Check, error) {
	var list []Check
	var unused []error
	for _, c := range conditions {
		before := len(list)
		for _, change := range changes {
			if c.about(change) {
				v := c.of(change)
				list = append(list, Check{c.text, change, *v, c.outcome(v)})
			}
		}
		if len(list) == before {
			unused = append(unused, fmt.Errorf("condition %q is about no figure of the comparison", c.text))
		}
	}
	return list, errors.Join(unused...)
}

// Failures are the checks that did not pass.
func Failures(all []Check) (list []Check) {
	for _, j := range all {
		if j.Outcome != Passed {
			list = append(list, j)
		}
	}
	return list
}
