package policy

import (
	"bytes"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// condition is something that rules ask of a peer. There is one for each content, whatever the number of rules that have it.
type condition struct {
	content content
	// selector is nil for lists of blocks.
	selector *selector
	// sets are those in force with rules that ask for it.
	sets []*numbered[*set]
	// mark is that of the last peer that was found to meet it: see Compiler.mark.
	mark uint64
}

// selector chooses pods.
type selector struct {
	scope *scope
	pods  []cluster.Requirement // canonical
}

// scope is the namespaces that a selector is about: one by its name, or those with some labels.
type scope struct {
	content    content
	namespace  string
	namespaces []cluster.Requirement // canonical; if namespace is empty
}

// conditions finds the conditions that there are.
type conditions struct {
	all    map[content]*condition
	scopes map[content]*scope
	bound  int // of all, above which those that are not used are dropped
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

// list is the condition to be in the blocks of a rule with such ports.
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

// prune drops the conditions that nothing refers to, once they may be most.
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

// leastConditions is how many conditions there may be before prune looks for those that are not used.
const leastConditions = 1 << 10
