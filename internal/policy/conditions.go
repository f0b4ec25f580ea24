package policy

import (
	"bytes"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// condition is a property of peers that rules match. There is one for each content, shared by all rules.
type condition struct {
	content content
	// selector is nil for lists of blocks.
	selector *selector
	// sets are the active ones with rules that match it.
	sets []*numbered[*set]
	// mark is that of the last peer that met it: see Compiler.mark.
	mark uint64
}

// selector selects pods.
type selector struct {
	scope *scope
	pods  []cluster.Requirement // canonical
}

// scope is the namespaces of a selector: one by its name, or those with some labels.
type scope struct {
	content    content
	namespace  string
	namespaces []cluster.Requirement // canonical; if namespace is empty
}

// conditions holds one condition for each content.
type conditions struct {
	all    map[content]*condition
	scopes map[content]*scope
	bound  int // size of all above which prune drops unused ones
}

func compareConditions(a, b *condition) int { return bytes.Compare(a.content[:], b.content[:]) }

func (c *conditions) selector(namespace string, peer *cluster.PolicyPeer) *condition {
	s := &selector{scope: c.scope(namespace, peer.Namespaces)}
	if peer.Pods != nil {
		s.pods = canonical(peer.Pods.Requirements)
	}
	d := newDigest("selector")
	d.bytes(s.scope.content[:])
	d.requirements(s.pods)
	return c.condition(condition{content: d.content(), selector: s})
}

func (c *conditions) scope(namespace string, namespaces *cluster.Selector) *scope {
	s := &scope{}
	d := newDigest("scope")
	if namespaces == nil {
		s.namespace = namespace
		d.text(namespace)
	} else {
		s.namespaces = canonical(namespaces.Requirements)
		d.requirements(s.namespaces)
	}
	s.content = d.content()
	if known := c.scopes[s.content]; known != nil {
		return known
	}
	c.scopes[s.content] = s
	return s
}

// list returns the condition to be in the blocks of a rule with these ports.
func (c *conditions) list(ports content, number int) *condition {
	d := newDigest("blocks")
	d.bytes(ports[:])
	d.number(uint64(number))
	return c.condition(condition{content: d.content()})
}

func (c *conditions) condition(of condition) *condition {
	if known := c.all[of.content]; known != nil {
		return known
	}
	c.all[of.content] = &of
	return &of
}

// prune drops unreferenced conditions once all has grown to bound.
func (c *Compiler) prune() {
	if len(c.conditions.all) < c.conditions.bound {
		return
	}
	kept := map[content]*condition{}
	keep := func(of *condition) { kept[of.content] = of }
	for _, p := range c.subjects.rules {
		for _, rules := range p.rules {
			for _, r := range rules {
				r.eachCondition(keep)
			}
		}
	}
	for _, s := range c.sets.objects {
		s.value.eachCondition(keep)
	}
	for _, identities := range []*registry[*identity]{c.pods, c.addresses} {
		for _, i := range identities.objects {
			for _, of := range i.value.met {
				keep(of)
			}
		}
	}
	c.conditions.all, c.conditions.scopes = kept, map[content]*scope{}
	for _, of := range kept {
		if of.selector != nil {
			c.conditions.scopes[of.selector.scope.content] = of.selector.scope
		}
	}
	c.conditions.bound = 2*len(kept) + leastConditions
}

// leastConditions is the smallest bound.
const leastConditions = 1 << 10
