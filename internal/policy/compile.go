package policy

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Compiler makes Tables of one snapshot after the other for one node. It recomputes only what changed: a pod that comes, goes
// or changes its labels costs what it affects, independent of the number of pods (see peers). Policies that select no pod of
// the node cost a selector match. The result equals that of a new Compiler. A Compiler is not safe for concurrent use.
type Compiler struct {
	node string
	pass uint64
	// mark identifies the last peer that was matched.
	mark uint64
	// namespaces are those of the last snapshot, with their labels.
	namespaces      []*cluster.Namespace
	namespaceLabels map[string]cluster.Labels
	// objects are the Pods of the last snapshot (objectsOf) that have the names of this node's pods.
	objects   map[cluster.Key]*cluster.Pod
	objectsOf cluster.List[*cluster.Pod]

	conditions conditions
	subjects   subjects
	rules      activeRules
	limits     limits
	peers      peers

	sets      *registry[*set]
	pods      *registry[*identity] // identities of pods, without IdentityPod
	addresses *registry[*identity]
	portLists *registry[portList]
	names     *registry[cluster.Key]
	scratch   scratch

	// used are the identities that some address has in this pass, described those in the last Tables.
	used      map[*numbered[*identity]]bool
	described described
	last      *Tables
}

// NewCompiler returns an empty Compiler for the node of that name.
func NewCompiler(node string) *Compiler { return newCompiler(node, hashed) }

// newCompiler returns a Compiler with another hash function, for tests of collisions.
func newCompiler(node string, sum func(content, uint32) uint32) *Compiler {
	identities := func(c content, nth uint32) uint32 {
		if n := Identity(sum(c, nth)) &^ IdentityPod; n != IdentityNode {
			return uint32(n)
		}
		return 0
	}
	sets := func(c content, nth uint32) uint32 {
		if n := sum(c, nth); Set(n) != DenyAll {
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
		limits:     limits{entries: entryLimits{backoff: backoff{now: time.Now}}},
	}
}

// Compile makes the Tables for a snapshot that has all Namespaces, Pods and NetworkPolicies (see Snapshot.Unknown). Problems
// are complete and sorted by their subject. The result depends only on the arguments, with two exceptions: 31-bit hashes that
// collide, and full tables (see SetSizes), for which a rejected policy stays rejected until a change may have made capacity,
// and at least until Postponed.
func (c *Compiler) Compile(snapshot *cluster.Snapshot, local Local) (*Tables, []Problem) {
	backoff := &c.limits.entries.backoff
	begin := backoff.now()
	backoff.searching = false
	c.reconsider(snapshot, &local)
	tables, problems := c.fitEntries(snapshot, &local, func() (*Tables, []Problem) { return c.compile(snapshot, local) })
	backoff.found(snapshot.NetworkPolicies, c.limits.entries.rejected, begin)
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

	passInput := c.newInput(snapshot, &local)
	tables := &Tables{}
	problems := c.collectLimited(passInput)
	c.collectRules()
	if len(c.subjects.found) > 0 {
		problems = append(problems, c.collectPeers(passInput)...)
		c.collectBlocks()
	} else {
		c.rules.reset()
		c.resetPeers()
	}
	c.entries()

	c.sets.assign()
	c.pods.assign()
	c.addresses.assign()
	c.portLists.assign()
	c.fill(tables, passInput)
	c.peers.releaseScratch()
	c.sets.sweep()
	c.pods.sweep()
	c.addresses.sweep()
	c.portLists.sweep()
	c.last = tables
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Or(a.Policy.Compare(b.Policy), strings.Compare(a.Text, b.Text)) })
	return tables, problems
}

// use marks an identity as used in this pass.
func (c *Compiler) use(i *numbered[*identity]) *numbered[*identity] {
	if i.value.pod {
		i = c.pods.use(i)
	} else {
		i = c.addresses.use(i)
	}
	c.used[i] = true
	return i
}

// identity returns the identity with these properties. met is sorted by content.
func (c *Compiler) identity(pod bool, met []*condition, ports []containerPort) *numbered[*identity] {
	i := &identity{pod: pod, met: met, ports: ports}
	of := c.addresses
	if pod {
		of = c.pods
	}
	return c.use(of.get(i.content(), func() *identity { return i }))
}

// compareNumbered orders objects by content.
func compareNumbered[T any](a, b *numbered[T]) int { return bytes.Compare(a.content[:], b.content[:]) }
