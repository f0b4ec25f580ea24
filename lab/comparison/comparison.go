// Package comparison compares two bench runs, or two builds within one run, figure by figure, and checks the differences
// for continuous integration. It is pure: no clock, no files.
package comparison

import (
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Change is how a figure of B differs from that of A.
type Change struct {
	Key
	Quantity
	A Side `json:"a"`
	B Side `json:"b"`
	// Value is B ÷ A. It is nil if A is 0. Ratio is B ÷ A of the ratios to node within each run, which also hold between
	// machines; for two builds in one run it is the ratio within a round. It is nil if one of them has no such ratio.
	Value *Value `json:"value,omitempty"`
	Ratio *Value `json:"ratio,omitempty"`
}

// Side is the figure of one run: its value, and its ratio to node within a round, which is nil if there is none.
type Side struct {
	Value
	Ratio *Value `json:"ratio,omitempty"`
}

// Of compares run b with run a, and returns the figures that both have.
//
// The runs are independent, so there are no rounds to pair. The interval of a quotient reaches from b's lower bound ÷ a's
// upper bound to b's upper bound ÷ a's lower bound: it holds at least 95 %.
func Of(a, b *result.Run) []Change {
	of := map[Key]Figure{}
	for _, f := range Figures(b) {
		of[f.Key] = f
	}
	var list []Change
	for _, fa := range Figures(a) {
		fb, ok := of[fa.Key]
		if !ok {
			continue
		}
		c := Change{Key: fa.Key, Quantity: fa.Quantity, A: fa.Side, B: fb.Side, Value: quotient(fa.Value, fb.Value)}
		if fa.Ratio != nil && fb.Ratio != nil && fa.Network != stats.Baseline {
			c.Ratio = quotient(*fa.Ratio, *fb.Ratio)
		}
		list = append(list, c)
	}
	return list
}

// Builds compares the build that made a run (B) with each other build in it (A). The networks of B name the changes. Their
// ratios are those within a round: what slows the machine for minutes slows both builds.
func Builds(run *result.Run) []Change {
	var list []Change
	for _, other := range run.Networks {
		this := other.Facts[result.OtherBuildOf]
		if this == "" {
			continue
		}
		paired := map[Key]*Value{}
		for _, s := range stats.Between(run, this, other.Name) {
			paired[keyOf(&s)] = ratioOf(&s)
		}
		of := map[Key]Figure{}
		for _, f := range Figures(run) {
			if f.Network == other.Name {
				f.Network = this
				of[f.Key] = f
			}
		}
		for _, f := range Figures(run) {
			if a, ok := of[f.Key]; ok && f.Network == this {
				f.Build = other.Name
				list = append(list, Change{Key: f.Key, Quantity: f.Quantity, A: a.Side, B: f.Side, Value: quotient(a.Value, f.Value), Ratio: paired[a.Key]})
			}
		}
	}
	return list
}

// quotient is b ÷ a with the widest interval that both intervals allow; nil if a is not positive.
func quotient(a, b Value) *Value {
	if a.Median <= 0 {
		return nil
	}
	q := &Value{Median: b.Median / a.Median, Once: a.Once || b.Once}
	if a.Low != nil && a.High != nil && b.Low != nil && b.High != nil && *a.Low > 0 {
		low, high := *b.Low / *a.High, *b.High / *a.Low
		q.Low, q.High = &low, &high
	}
	return q
}

// String names the figure: "beeline tcp_rr, cross-node, one-core, 1 process".
func (k Key) String() string {
	parts := []string{k.Name}
	if k.Metric != "" {
		parts[0] += " " + k.Metric
	}
	if k.Path != "" {
		parts = append(parts, string(k.Path))
	}
	if k.Placement != "" {
		parts = append(parts, string(k.Placement))
	}
	if k.Procs > 1 {
		parts = append(parts, plural(k.Procs, "process", "processes"))
	}
	if k.Objects > 0 {
		parts = append(parts, plural(k.Objects, "object", "objects"))
	}
	name := k.Network
	if k.Build != "" {
		name += " ÷ " + k.Build
	}
	return name + ": " + strings.Join(parts, ", ")
}
