package policy

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// selects reports whether labels meet all requirements.
func selects(requirements []cluster.Requirement, labels cluster.Labels) bool {
	for i := range requirements {
		if !requirements[i].Matches(labels) {
			return false
		}
	}
	return true
}

// canonical sorts requirements and removes duplicates.
func canonical(requirements []cluster.Requirement) []cluster.Requirement {
	all := make([]cluster.Requirement, len(requirements))
	for i, r := range requirements {
		r.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
		all[i] = r
	}
	compare := func(a, b cluster.Requirement) int {
		if n := strings.Compare(a.Key, b.Key); n != 0 {
			return n
		}
		if n := strings.Compare(string(a.Operator), string(b.Operator)); n != 0 {
			return n
		}
		return slices.Compare(a.Values, b.Values)
	}
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(a, b cluster.Requirement) bool { return compare(a, b) == 0 })
}

func (d *digest) requirements(all []cluster.Requirement) {
	d.number(uint64(len(all)))
	for _, r := range all {
		d.text(r.Key)
		d.text(string(r.Operator))
		d.number(uint64(len(r.Values)))
		for _, v := range r.Values {
			d.text(v)
		}
	}
}

// index finds the selectors that select given labels without trying all of them.
type index[T any] struct {
	// byLabel has the selectors that require one of some values of a label, under each of these. The others are always tried.
	byLabel map[label][]indexed[T]
	others  []indexed[T]
}

type label struct{ key, value string }

type indexed[T any] struct {
	requirements []cluster.Requirement
	value        T
}

func (x *index[T]) add(requirements []cluster.Requirement, value T) {
	of := indexed[T]{requirements, value}
	var best *cluster.Requirement
	for i := range requirements {
		r := &requirements[i]
		if r.Operator == metav1.LabelSelectorOpIn && (best == nil || len(r.Values) < len(best.Values)) {
			best = r
		}
	}
	if best == nil {
		x.others = append(x.others, of)
		return
	}
	if x.byLabel == nil {
		x.byLabel = map[label][]indexed[T]{}
	}
	for i, value := range best.Values {
		if !slices.Contains(best.Values[:i], value) {
			at := label{best.Key, value}
			x.byLabel[at] = append(x.byLabel[at], of)
		}
	}
}

func (x *index[T]) isEmpty() bool { return len(x.byLabel)+len(x.others) == 0 }

// find appends the values of the selectors that select labels, unordered, without duplicates.
func (x *index[T]) find(labels cluster.Labels, to []T) []T {
	for i := range x.others {
		if selects(x.others[i].requirements, labels) {
			to = append(to, x.others[i].value)
		}
	}
	if len(x.byLabel) == 0 {
		return to
	}
	for key, value := range labels.All() {
		for _, of := range x.byLabel[label{key, value}] {
			if selects(of.requirements, labels) {
				to = append(to, of.value)
			}
		}
	}
	return to
}

// findAny appends the values of the selectors that select any labels.
func (x *index[T]) findAny(to []T) []T {
	for i := range x.others {
		if len(x.others[i].requirements) == 0 {
			to = append(to, x.others[i].value)
		}
	}
	return to
}

// all appends the values of all selectors, once for each label under which they are indexed.
func (x *index[T]) all(to []T) []T {
	for i := range x.others {
		to = append(to, x.others[i].value)
	}
	for _, of := range x.byLabel {
		for i := range of {
			to = append(to, of[i].value)
		}
	}
	return to
}

// podLabels is what selectors match.
type podLabels struct {
	namespace          string
	ofNamespace, ofPod cluster.Labels
	// unlabelled says that the pod's labels are unknown.
	unlabelled bool
}

type namespaceLabels struct {
	name   string
	labels cluster.Labels
}

// selectorIndex finds the active selectors that select a pod.
type selectorIndex struct {
	selectors []*condition // sorted by content
	names     map[string][]*index[*condition]
	scopes    index[*index[*condition]]
	within    map[namespaceLabels][]*index[*condition]
}

func newSelectorIndex(selectors []*condition) *selectorIndex {
	c := &selectorIndex{
		selectors: selectors, names: map[string][]*index[*condition]{}, within: map[namespaceLabels][]*index[*condition]{},
	}
	byScope := map[*scope]*index[*condition]{}
	for _, s := range selectors {
		of := s.selector.scope
		x := byScope[of]
		if x == nil {
			x = &index[*condition]{}
			byScope[of] = x
			if of.namespace != "" {
				c.names[of.namespace] = append(c.names[of.namespace], x)
			} else {
				c.scopes.add(of.namespaces, x)
			}
		}
		x.add(s.selector.pods, s)
	}
	return c
}

// selecting returns the selectors that select pods with these labels, sorted by content.
func (c *selectorIndex) selecting(of podLabels) (selectors []*condition) {
	for _, x := range c.indices(namespaceLabels{of.namespace, of.ofNamespace}) {
		if of.unlabelled {
			selectors = x.findAny(selectors)
		} else {
			selectors = x.find(of.ofPod, selectors)
		}
	}
	slices.SortFunc(selectors, compareConditions)
	return selectors
}

// selectsNamespace reports whether some selector matches a namespace; it caches nothing.
func (c *selectorIndex) selectsNamespace(namespace string, labels func() cluster.Labels) bool {
	return len(c.names[namespace]) > 0 || !c.scopes.isEmpty() && len(c.scopes.find(labels(), nil)) > 0
}

// indices returns the indexes of the selectors that match a namespace.
func (c *selectorIndex) indices(namespace namespaceLabels) []*index[*condition] {
	all, known := c.within[namespace]
	if !known {
		if len(c.within) == maxKnown {
			clear(c.within)
		}
		all = c.scopes.find(namespace.labels, slices.Clone(c.names[namespace.name]))
		c.within[namespace] = all
	}
	return all
}
