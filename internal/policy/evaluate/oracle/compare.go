package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
)

// Judge says about traffic in a World whether it is allowed at this node, and why, as far as it knows. An error is one of the judge itself.
type Judge func(World, evaluate.Traffic) (allowed bool, why string, err error)

// Documentation is the judge by the API's documentation. Only pods of this node are asked, of both ends.
func Documentation(w World, t evaluate.Traffic) (allowed bool, why string, err error) {
	v := evaluate.Evaluate(w.Snapshot, t)
	if v.Err != nil {
		return false, "", fmt.Errorf("evaluate %s: %w", Describe(t), v.Err)
	}
	return w.Allows(v.Egress) && w.Allows(v.Ingress), strings.Join(v.Explain(), "\n"), nil
}

// Allows tells whether this node lets pass what has a judgement: what is said to pods elsewhere is for their nodes to enforce.
func (w World) Allows(j evaluate.Judgement) bool {
	return j.Allowed || !w.Judges(j)
}

// Judges tells whether a judgement is of a pod of this node.
func (w World) Judges(j evaluate.Judgement) bool {
	return slices.ContainsFunc(w.Own(), func(p *cluster.Pod) bool { return p.Key() == j.Pod })
}

// Disagreement words the smallest cluster in which a judge disagrees with the documentation about traffic. If it does not in a World that
// it has not come to by way of others, the World is left as it is.
func Disagreement(w World, t evaluate.Traffic, judge Judge) string {
	disagree := func(w World) bool {
		want, _, err := Documentation(w, t)
		if err != nil {
			return false // an end of the traffic was taken out
		}
		got, _, err := judge(w, t)
		return err == nil && got != want
	}
	note := "The judge came to it by way of other clusters, and agrees if it sees nothing but this one:\n"
	if disagree(w) {
		w, note = w.Shrink(disagree), ""
	}
	want, documentation, err := Documentation(w, t)
	got, other, err2 := judge(w, t)
	return fmt.Sprintf("%s\n%sallowed by the documentation: %t %v\n%s\nallowed by the judge: %t %v\n%s\n%s",
		Describe(t), note, want, errorOrNothing(err), documentation, got, errorOrNothing(err2), other, w.YAML())
}

func errorOrNothing(err error) string {
	if err == nil {
		return ""
	}
	return "(" + err.Error() + ")"
}
