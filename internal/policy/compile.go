package policy

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Compiler makes Tables of snapshot after snapshot for one node, and does again only what has changed. Policies that select no pod of
// the node cost nothing but being asked. It is not safe for concurrent use.
type Compiler struct {
	node string
	pass uint64
	// mark is that of the last peer that was looked at.
	mark uint64

	conditions conditions
	subjects   subjects
	rules      rules
	peers      peers

	sets       *registry[*set]
	pods       *registry[*identity] // identities of pods, without the bit
	addresses  *registry[*identity]
	portLists  *registry[portList]
	names      *registry[cluster.Key]
	scratch    scratch
	last       *Tables
	inUse      []*numbered[*identity]
	seenInPass map[*numbered[*identity]]bool
	// described are the identities in the policies of the last Tables, under a generation of rules.
	described           map[*numbered[*identity]]bool
	describedGeneration uint64
}

// NewCompiler makes a Compiler for the node of that name that has seen nothing.
func NewCompiler(node string) *Compiler { return newCompiler(node, hashed) }

// newCompiler makes one with another checksum than usual.
func newCompiler(node string, sum func(content, uint32) uint32) *Compiler {
	identities := func(c content, nth uint32) uint32 {
		if n := Identity(sum(c, nth)) &^ IdentityPod; n != IdentityNode {
			return uint32(n)
		}
		return 0
	}
	sets := func(c content, nth uint32) uint32 {
		if n := sum(c, nth); Set(n) != Closed {
			return n
		}
		return 0
	}
	return &Compiler{
		node:       node,
		conditions: conditions{all: map[content]*condition{}, scopes: map[content]*scope{}, bound: leastConditions},
		sets:       newRegistry[*set](sets),
		pods:       newRegistry[*identity](identities),
		addresses:  newRegistry[*identity](identities),
		portLists:  newRegistry[portList](sum),
		names:      newRegistry[cluster.Key](sum),
		last:       &Tables{Policies: map[Peer]Ports{}},
		seenInPass: map[*numbered[*identity]]bool{},
	}
}

// Compile makes the Tables for a snapshot that has all Namespaces, Pods and NetworkPolicies (see Snapshot.Unknown). Problems are all that
// are there, sorted by what they are about. Tables depend on nothing but the arguments, whatever was compiled before, unless
// checksums of 31 bits collide.
func (c *Compiler) Compile(snapshot *cluster.Snapshot, local Local) (*Tables, []Problem) {
	c.pass++
	c.sets.begin()
	c.pods.begin()
	c.addresses.begin()
	c.portLists.begin()
	c.inUse = c.inUse[:0]

	c.prune()
	world := newWorld(c.node, snapshot, &local)
	tables := &Tables{}
	problems := c.takeSubjects(world)
	c.takeRules()
	if len(c.subjects.found) > 0 {
		problems = append(problems, c.takePeers(world)...)
		c.takeBlocks()
	} else {
		c.rules.forget()
		c.peers.found = c.peers.found[:0]
	}
	c.entries()

	c.sets.give()
	c.pods.give()
	c.addresses.give()
	c.portLists.give()
	c.fill(tables, world)
	c.sets.sweep()
	c.pods.sweep()
	c.addresses.sweep()
	c.portLists.sweep()
	c.last = tables
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Policy.Compare(b.Policy) })
	return tables, problems
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
	c.peers.known = nil // has identities that no registry has
}

// leastConditions is how many conditions there may be before prune looks for those that are not used.
const leastConditions = 1 << 10

// entries are what used sets say of everybody who is in use.
func (c *Compiler) entries() {
	for _, s := range c.rules.sets {
		c.defaults(s.value)
	}
	for _, i := range c.inUse {
		c.entriesOf(i.value)
	}
}

// defaults makes what a set allows those of whom nothing is known.
func (c *Compiler) defaults(s *set) {
	if s.unknown == nil {
		c.mark++
		s.unknown = s.allowed(&peer{mark: c.mark}, c.portLists, &c.scratch)
		s.pods = s.allowed(&peer{mark: c.mark, pod: true}, c.portLists, &c.scratch)
		return
	}
	s.unknown, s.pods = c.portLists.use(s.unknown), c.portLists.use(s.pods)
}

// entriesOf makes what the sets in force say of an identity. Only those have something to say whose rules ask for what it has.
func (c *Compiler) entriesOf(i *identity) {
	if i.generation == c.rules.generation {
		for n := range i.entries {
			i.entries[n].ports = c.portLists.use(i.entries[n].ports)
		}
		return
	}
	known, generation := i.generation, c.rules.generation
	i.entries = slices.DeleteFunc(i.entries, func(e entry) bool { return e.set.value.until != generation || e.set.value.since > known })
	for n := range i.entries {
		i.entries[n].ports = c.portLists.use(i.entries[n].ports)
	}
	i.generation = generation
	c.mark++
	of := peer{pod: i.pod, mark: c.mark, ports: i.ports}
	for _, d := range i.met {
		d.mark = c.mark
	}
	ask := func(s *numbered[*set]) {
		if s.value.seen == c.mark || s.value.since <= known {
			return
		}
		s.value.seen = c.mark
		usual := s.value.unknown
		if i.pod {
			usual = s.value.pods
		}
		if ports := s.value.allowed(&of, c.portLists, &c.scratch); ports.content != usual.content {
			i.entries = append(i.entries, entry{s, ports})
		}
	}
	for _, d := range i.met {
		for _, s := range d.sets {
			ask(s)
		}
	}
	for _, p := range i.ports {
		for _, s := range c.rules.asked[p.namedPort] {
			ask(s)
		}
	}
}

// use notes that somebody has an identity.
func (c *Compiler) use(i *numbered[*identity]) *numbered[*identity] {
	if i.value.pod {
		i = c.pods.use(i)
	} else {
		i = c.addresses.use(i)
	}
	if !c.seenInPass[i] {
		c.seenInPass[i] = true
		c.inUse = append(c.inUse, i)
	}
	return i
}

// identity gives the identity with some properties. met is sorted by content.
func (c *Compiler) identity(pod bool, met []*condition, ports []containerPort) *numbered[*identity] {
	i := &identity{pod: pod, met: met, ports: ports}
	of := c.addresses
	if pod {
		of = c.pods
	}
	return c.use(of.get(i.content(), func() *identity { return i }))
}

// fill makes Tables of what has numbers now.
func (c *Compiler) fill(t *Tables, w *world) {
	t.Pods, t.Selected = c.subjects.tables()
	t.Identities = make(map[netip.Addr]Identity, len(c.peers.found)+len(w.own))
	if len(t.Pods) > 0 {
		for addr := range w.own {
			t.Identities[addr] = IdentityNode
		}
	}
	for _, p := range c.peers.found {
		t.Identities[p.address] = numberOf(p.identity)
	}
	t.Pods, t.Selected = share(c.last.Pods, t.Pods), shareSelected(c.last.Selected, t.Selected)
	t.Identities = share(c.last.Identities, t.Identities)
	if c.fillPolicies(t) {
		c.fillPorts(t)
	}
	c.fillBlocks(t)
}

// fillPolicies makes the table of policies from the one before: without the sets and identities that are gone, and with what is said of new
// ones. It returns false if it is the same.
func (c *Compiler) fillPolicies(t *Tables) bool {
	before, generation := c.described, c.rules.generation
	same, next := generation == c.describedGeneration, generation == c.describedGeneration+1
	c.described, c.describedGeneration = c.seenInPass, generation
	c.seenInPass = map[*numbered[*identity]]bool{}
	t.Policies, t.Ports, t.Names = c.last.Policies, c.last.Ports, c.last.Names
	changed := false
	change := func() {
		if !changed {
			t.Policies, changed = maps.Clone(t.Policies), true
		}
	}
	switch {
	case same:
	case next:
		change()
		inForce := make(map[Set]bool, len(c.rules.sets))
		for _, s := range c.rules.sets {
			inForce[Set(s.number)] = true
		}
		maps.DeleteFunc(t.Policies, func(p Peer, _ Ports) bool { return !inForce[p.Set] })
	default:
		before = nil
		t.Policies, changed = map[Peer]Ports{}, true
	}
	for i := range before {
		if !c.described[i] && len(i.value.entries) > 0 {
			change()
			for _, e := range i.value.entries {
				delete(t.Policies, Peer{Set(e.set.number), numberOf(i)})
			}
		}
	}
	since := uint64(0) // which sets a known identity has entries of that are not in the table
	if same {
		since = generation + 1
	} else if next {
		since = generation
	}
	for _, s := range c.rules.sets {
		if s.value.since >= since {
			describeDefaults(t.Policies, s)
		}
	}
	for _, i := range c.inUse {
		from := uint64(0)
		if before[i] {
			from = since
		}
		for _, e := range i.value.entries {
			if e.set.value.since >= from {
				change()
				t.Policies[Peer{Set(e.set.number), numberOf(i)}] = portsNumber(e.ports)
			}
		}
	}
	return changed
}

// describeDefaults adds what a set says of everybody.
func describeDefaults(policies map[Peer]Ports, s *numbered[*set]) {
	if len(s.value.unknown.value) > 0 {
		policies[Peer{Set(s.number), IdentityUnknown}] = portsNumber(s.value.unknown)
	}
	if s.value.pods.content != s.value.unknown.content {
		policies[Peer{Set(s.number), IdentityPod}] = portsNumber(s.value.pods)
	}
}

// fillPorts makes the tables of ports: the lists that this pass has used.
func (c *Compiler) fillPorts(t *Tables) {
	c.names.begin()
	t.Ports, t.Names = map[PortPrefix]Policy{}, map[Policy]cluster.Key{}
	var lists []*numbered[portList]
	named := map[cluster.Key]*numbered[cluster.Key]{}
	for _, list := range c.portLists.objects {
		if list.used != c.portLists.pass {
			continue
		}
		lists = append(lists, list)
		for _, e := range list.value {
			if named[e.policy] == nil {
				d := newDigest("policy")
				d.text(e.policy.Namespace)
				d.text(e.policy.Name)
				named[e.policy] = c.names.get(d.content(), func() cluster.Key { return e.policy })
			}
		}
	}
	c.names.give()
	for key, name := range named {
		t.Names[Policy(name.number)] = key
	}
	for _, list := range lists {
		for _, e := range list.value {
			prefix := e.prefix
			prefix.Ports = portsNumber(list)
			t.Ports[prefix] = Policy(named[e.policy].number)
		}
	}
	c.names.sweep()
	t.Ports, t.Names = share(c.last.Ports, t.Ports), share(c.last.Names, t.Names)
}

// portsNumber gives the number of a list; the empty one has none.
func portsNumber(list *numbered[portList]) Ports {
	if len(list.value) == 0 {
		return 0
	}
	return Ports(list.number)
}

// share gives the map of before if it is as the one now.
func share[K, V comparable](before, now map[K]V) map[K]V {
	if before != nil && maps.Equal(before, now) {
		return before
	}
	return now
}

func shareSelected(before, now map[cluster.Key][]cluster.Key) map[cluster.Key][]cluster.Key {
	if before != nil && maps.EqualFunc(before, now, slices.Equal[[]cluster.Key]) {
		return before
	}
	return now
}

// compareNumbered sorts objects by content.
func compareNumbered[T any](a, b *numbered[T]) int { return bytes.Compare(a.content[:], b.content[:]) }

// countPods names pods in a sentence.
func countPods(pods []cluster.Key) string {
	switch len(pods) {
	case 0:
		return "no pod here"
	case 1:
		return "pod " + pods[0].String()
	}
	return fmt.Sprintf("%d pods here", len(pods))
}
