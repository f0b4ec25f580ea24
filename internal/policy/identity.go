package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// identity is all that policies can tell of the peers with one number.
type identity struct {
	pod bool
	// met are the conditions that they meet, sorted by content.
	met []*condition
	// ports are those that rules for egress ask for by name.
	ports []containerPort
	// entries are the sets with something to say of them, sorted by the sets' contents; made for one generation of rules.
	entries    []entry
	generation uint64
}

// entry is what a set allows an identity. ports is nil if that is what it would be allowed anyway.
type entry struct {
	set   *numbered[*set]
	ports *numbered[portList]
}

// bare tells whether nothing is known but whether it is a pod.
func (i *identity) bare() bool { return len(i.met) == 0 && len(i.ports) == 0 }

// numberOf gives the number of an identity as Tables have it.
func numberOf(i *numbered[*identity]) Identity {
	switch {
	case i.value.bare() && i.value.pod:
		return IdentityPod
	case i.value.bare():
		return IdentityUnknown
	case i.value.pod:
		return Identity(i.number) | IdentityPod
	}
	return Identity(i.number)
}

func (i *identity) content() content {
	kind := "address"
	if i.pod {
		kind = "pod"
	}
	d := newDigest(kind)
	d.number(uint64(len(i.met)))
	for _, c := range i.met {
		d.bytes(c.content[:])
	}
	d.number(uint64(len(i.ports)))
	for _, p := range i.ports {
		d.text(p.name)
		d.number(uint64(p.protocol)<<16 | uint64(p.number))
	}
	return d.content()
}

// podClass is pods that the selectors in force do not tell apart.
type podClass struct {
	selectors []*condition // those that select them, sorted by content
}

// podLabels is what selectors ask for.
type podLabels struct {
	namespace             string
	ofNamespace, ofPod    cluster.Labels
	unlabelled, placeless bool // the labels of the pod are not known; its namespace neither
}

// choice is the selectors in force, with what finds those that select a pod.
type choice struct {
	selectors []*condition // sorted by content
	names     map[string][]*index[*condition]
	scopes    index[*index[*condition]]
	classes   map[podLabels]*podClass
	within    map[podLabels][]*index[*condition] // of a namespace
}

func newChoice(selectors []*condition) *choice {
	c := &choice{
		selectors: selectors, names: map[string][]*index[*condition]{},
		classes: map[podLabels]*podClass{}, within: map[podLabels][]*index[*condition]{},
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
	class := &podClass{}
	if !of.placeless {
		for _, x := range c.indices(podLabels{namespace: of.namespace, ofNamespace: of.ofNamespace}) {
			if of.unlabelled {
				class.selectors = x.findAny(class.selectors)
			} else {
				class.selectors = x.find(of.ofPod, class.selectors)
			}
		}
	}
	slices.SortFunc(class.selectors, compareConditions)
	c.classes[of] = class
	return class
}

// indices gives the indices of the selectors that are about a namespace.
func (c *choice) indices(namespace podLabels) []*index[*condition] {
	all, known := c.within[namespace]
	if !known {
		all = c.scopes.find(namespace.ofNamespace, slices.Clone(c.names[namespace.namespace]))
		c.within[namespace] = all
	}
	return all
}

func comparePorts(a, b containerPort) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.number, b.number))
}

// portsOf gives the numbers of a pod's ports with names that are asked for, in a fixed order.
func portsOf(pod *cluster.Pod, asked map[namedPort][]*numbered[*set]) []containerPort {
	if pod == nil || len(asked) == 0 {
		return nil
	}
	var ports []containerPort
	for _, p := range pod.Ports {
		name := namedPort{p.Name, p.Protocol}
		if len(asked[name]) > 0 {
			ports = append(ports, containerPort{name, p.Number})
		}
	}
	slices.SortFunc(ports, comparePorts)
	return slices.Compact(ports)
}
