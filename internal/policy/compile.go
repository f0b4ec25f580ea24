package policy

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Compiler makes Tables of snapshot after snapshot for one node, and does again only what has changed: a pod that comes, goes or gets
// other labels costs what it touches, whatever the number of the others (see peers). Policies that select no pod of
// the node cost nothing but being asked. What it makes is what a new Compiler makes, which has nothing to go by but the snapshot. It is not safe for concurrent use.
type Compiler struct {
	node string
	pass uint64
	// mark is that of the last peer that was looked at.
	mark uint64
	// namespaces are those of the last snapshot, with their labels.
	namespaces      []*cluster.Namespace
	namespaceLabels map[string]cluster.Labels
	// objects are the Pods of the last snapshot, objectsOf, that have the names of pods here.
	objects   map[cluster.Key]*cluster.Pod
	objectsOf cluster.List[*cluster.Pod]

	conditions conditions
	subjects   subjects
	rules      rulesInForce
	bounds     bounds
	peers      peers

	sets      *registry[*set]
	pods      *registry[*identity] // identities of pods, without the bit
	addresses *registry[*identity]
	portLists *registry[portList]
	names     *registry[cluster.Key]
	scratch   scratch

	// used are the identities that somebody has in this pass, and described those that the last Tables have.
	used      map[*numbered[*identity]]bool
	described described
	last      *Tables
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
		last:       &Tables{},
		bounds:     bounds{entries: entryBounds{pace: entryPace{now: time.Now}}},
	}
}

// Compile makes the Tables for a snapshot that has all Namespaces, Pods and NetworkPolicies (see Snapshot.Unknown). Problems are all that
// are there, sorted by what they are about. Tables depend on nothing but the arguments, whatever was compiled before, unless
// checksums of 31 bits collide, or a table is full (see Bound): then what was refused stays so until something changes that may have made room,
// and at least until Postponed.
func (c *Compiler) Compile(snapshot *cluster.Snapshot, local Local) (*Tables, []Problem) {
	pace := &c.bounds.entries.pace
	begin := pace.now()
	pace.looking = false
	c.reconsider(snapshot, &local)
	tables, problems := c.fitEntries(snapshot, &local, func() (*Tables, []Problem) { return c.compile(snapshot, local) })
	pace.found(snapshot.NetworkPolicies, c.bounds.entries.refused, begin)
	return tables, problems
}

func (c *Compiler) compile(snapshot *cluster.Snapshot, local Local) (*Tables, []Problem) {
	c.pass++
	c.sets.begin()
	c.pods.begin()
	c.addresses.begin()
	c.portLists.begin()
	c.used = map[*numbered[*identity]]bool{}
	c.prune()

	world := c.newWorld(snapshot, &local)
	tables := &Tables{}
	problems := c.takeBounded(world)
	c.takeRules()
	if len(c.subjects.found) > 0 {
		problems = append(problems, c.takePeers(world)...)
		c.takeBlocks()
	} else {
		c.rules.forget()
		c.forgetPeers()
	}
	c.entries()

	c.sets.give()
	c.pods.give()
	c.addresses.give()
	c.portLists.give()
	c.fill(tables, world)
	c.peers.rest()
	c.sets.sweep()
	c.pods.sweep()
	c.addresses.sweep()
	c.portLists.sweep()
	c.last = tables
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Or(a.Policy.Compare(b.Policy), strings.Compare(a.Text, b.Text)) })
	return tables, problems
}

// use notes that somebody has an identity.
func (c *Compiler) use(i *numbered[*identity]) *numbered[*identity] {
	if i.value.pod {
		i = c.pods.use(i)
	} else {
		i = c.addresses.use(i)
	}
	c.used[i] = true
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

// compareNumbered sorts objects by content.
func compareNumbered[T any](a, b *numbered[T]) int { return bytes.Compare(a.content[:], b.content[:]) }
