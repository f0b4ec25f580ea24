package cluster

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Selector selects by labels: all requirements must match. Without requirements it selects everything.
type Selector struct{ Requirements []Requirement }

// Requirement is one condition on one label.
type Requirement struct {
	Key      string
	Operator metav1.LabelSelectorOperator
	// Values are for the operators In and NotIn.
	Values []string
}

// Matches reports whether labels meet all requirements.
func (s *Selector) Matches(labels Labels) bool {
	for i := range s.Requirements {
		if !s.Requirements[i].Matches(labels) {
			return false
		}
	}
	return true
}

// Matches reports whether labels meet the requirement.
func (r *Requirement) Matches(labels Labels) bool {
	value, has := labels.Get(r.Key)
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		return has && slices.Contains(r.Values, value)
	case metav1.LabelSelectorOpNotIn:
		return !has || !slices.Contains(r.Values, value)
	case metav1.LabelSelectorOpExists:
		return has
	case metav1.LabelSelectorOpDoesNotExist:
		return !has
	}
	return false
}

// selector reads a label selector; matchLabels become requirements, so that there is one form.
func (c *checks) selector(field string, s *metav1.LabelSelector) (selector Selector) {
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		selector.Requirements = append(selector.Requirements, Requirement{
			Key: Intern(key), Operator: metav1.LabelSelectorOpIn, Values: []string{Intern(s.MatchLabels[key])},
		})
	}
	for i, e := range s.MatchExpressions {
		at := fmt.Sprintf("%s.matchExpressions[%d]", field, i)
		r := Requirement{Key: Intern(e.Key), Operator: e.Operator, Values: slices.Clone(e.Values)}
		switch e.Operator {
		case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
			if len(e.Values) == 0 {
				c.fail(at+".values", "missing, operator %s needs some", e.Operator)
			}
		case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
			if len(e.Values) > 0 {
				c.fail(at+".values", "operator %s takes none", e.Operator)
			}
		default:
			c.fail(at+".operator", "%q is none of In, NotIn, Exists and DoesNotExist", e.Operator)
		}
		selector.Requirements = append(selector.Requirements, r)
	}
	return selector
}
