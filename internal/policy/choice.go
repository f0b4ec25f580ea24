package policy

import (
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// podClass is pods that the selectors in force do not tell apart.
type podClass struct {
	selectors []*condition // those that select them, sorted by content
}

// podLabels is what selectors ask for.
type podLabels struct {
	namespace          string
	ofNamespace, ofPod cluster.Labels
	// unlabelled says that the pod's labels are not known.
	unlabelled bool
}

type namespaceLabels struct {
	name   string
	labels cluster.Labels
}

// choice is the selectors in force, with what finds those that select a pod.
type choice struct {
	selectors []*condition // sorted by content
	names     map[string][]*index[*condition]
	scopes    index[*index[*condition]]
	classes   map[podLabels]*podClass
	within    map[namespaceLabels][]*index[*condition]
}

func newChoice(selectors []*condition) *choice {
	c := &choice{
		selectors: selectors, names: map[string][]*index[*condition]{},
		classes: map[podLabels]*podClass{}, within: map[namespaceLabels][]*index[*condition]{},
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

// classOf gives the class of pods with labels.
func (c *choice) classOf(of podLabels) *podClass {
	if known := c.classes[of]; known != nil {
		return known
	}
	class := &podClass{c.selecting(of)}
	c.classes[of] = class
	return class
}

// selecting gives the selectors that select pods with labels, sorted by content.
func (c *choice) selecting(of podLabels) (selectors []*condition) {
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

// concerns tells whether some selector is about a namespace, and remembers nothing.
func (c *choice) concerns(namespace string, labels func() cluster.Labels) bool {
	return len(c.names[namespace]) > 0 || !c.scopes.isEmpty() && len(c.scopes.find(labels(), nil)) > 0
}

// indices gives the indices of the selectors that are about a namespace.
func (c *choice) indices(namespace namespaceLabels) []*index[*condition] {
	all, known := c.within[namespace]
	if !known {
		all = c.scopes.find(namespace.labels, slices.Clone(c.names[namespace.name]))
		c.within[namespace] = all
	}
	return all
}
