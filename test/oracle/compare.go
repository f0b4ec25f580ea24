package oracle

import (
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
)

// Evaluator reports whether this node allows traffic in a Cluster, and why. An error is the evaluator's own.
type Evaluator func(Cluster, evaluate.Traffic) (allowed bool, why string, err error)

// Documentation is package evaluate as an Evaluator: only the pods of this node enforce policies, at both ends.
func Documentation(w Cluster, t evaluate.Traffic) (allowed bool, why string, err error) {
	v := evaluate.Evaluate(w.Snapshot, t)
	if v.Err != nil {
		return false, "", fmt.Errorf("evaluate %s: %w", Describe(t), v.Err)
	}
	return w.Allows(v.Egress) && w.Allows(v.Ingress), fmt.Sprintf("%+v\n%+v", v.Egress, v.Ingress), nil
}

// Allows reports whether this node lets traffic with a decision pass: decisions for pods on other nodes are enforced there.
func (w Cluster) Allows(j evaluate.Decision) bool {
	return j.Allowed || !w.Enforces(j)
}

// Enforces reports whether a decision is for a pod of this node.
func (w Cluster) Enforces(j evaluate.Decision) bool {
	return slices.ContainsFunc(w.Own(), func(p *cluster.Pod) bool { return p.Key() == j.Pod })
}

// Disagreement describes the smallest cluster in which an evaluator disagrees with the documentation about traffic. If it only
// disagrees after other Clusters, the Cluster is not shrunk.
func Disagreement(w Cluster, t evaluate.Traffic, evaluator Evaluator) string {
	disagree := func(w Cluster) bool {
		want, _, err := Documentation(w, t)
		if err != nil {
			return false // an end of the traffic was removed
		}
		got, _, err := evaluator(w, t)
		return err == nil && got != want
	}
	note := "The evaluator disagrees only after other clusters, not in this one alone:\n"
	if disagree(w) {
		w, note = w.Shrink(disagree), ""
	}
	want, documentation, err := Documentation(w, t)
	got, other, err2 := evaluator(w, t)
	return fmt.Sprintf("%s\n%sallowed by the documentation: %t %v\n%s\nallowed by the evaluator: %t %v\n%s\n%s",
		Describe(t), note, want, errorOrNothing(err), documentation, got, errorOrNothing(err2), other, w.YAML())
}

func errorOrNothing(err error) string {
	if err == nil {
		return ""
	}
	return "(" + err.Error() + ")"
}
