package apiserver

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// nodes is the section of Nodes, which may conflict with each other. It keeps more of this node's own Node.
type nodes struct {
	*table[*cluster.NodeObject]
	self string
	own  *ownNode
	// doubtful are Nodes of the first list that have never been valid.
	doubtful []cluster.Key

	// list and conflicts are those of the objects in resolved.
	resolved  cluster.List[*cluster.NodeObject]
	list      []cluster.Node
	conflicts []cluster.ObjectProblem
}

// ownNode is what the Reporter needs of this node's object.
type ownNode struct {
	// condition is the NetworkUnavailable condition of the object; empty if there is none.
	condition Condition
	// taints are all taints of the object at this version.
	taints  []corev1.Taint
	version string
	// announced is what the annotations say.
	announced cluster.Announced
}

// Condition is a node condition NetworkUnavailable.
type Condition struct {
	// Status is "True" while the node has no network for pods, "False" when it has; empty if the condition is
	// missing.
	Status string
	// Reason is one word in CamelCase, Message a sentence.
	Reason, Message string
}

// readOwn reads the fields that are kept of this node's own object only.
func readOwn(n *corev1.Node) *ownNode {
	own := &ownNode{taints: n.Spec.Taints, version: n.ResourceVersion, announced: cluster.AnnouncedBy(n)}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable {
			own.condition = Condition{Status: string(c.Status), Reason: c.Reason, Message: c.Message}
		}
	}
	return own
}

func newNodes(self string) *nodes {
	n := &nodes{table: newTable[*cluster.NodeObject](cluster.KindNode), self: self}
	// Readiness decides conflicts only.
	n.matters = func(before, now *cluster.NodeObject) bool { return len(n.conflicts) > 0 || !before.EqualButReady(now) }
	return n
}

func (n *nodes) set(item *item) bool {
	if item.key.Name == n.self {
		n.own = item.own
	}
	return n.table.set(item)
}

func (n *nodes) remove(key cluster.Key) bool {
	if key.Name == n.self {
		n.own = nil
	}
	return n.table.remove(key)
}

// resolve gives the resolved nodes: the same slice until something changes. incomplete says that an object of the
// first list has never been valid.
func (n *nodes) resolve() (list []cluster.Node, incomplete bool) {
	if objects := n.table.list(); n.list == nil || !objects.Same(n.resolved) {
		n.resolved = objects
		list, n.conflicts = cluster.ResolveNodes(objects.Slice())
		if n.list == nil || !cluster.EqualNodes(list, n.list) {
			n.list = list
		}
	}
	n.doubtful = slices.DeleteFunc(n.doubtful, func(key cluster.Key) bool {
		_, wrong := n.wrong[key]
		return !wrong || n.current(key) != nil
	})
	return n.list, len(n.doubtful) > 0
}

func (n *nodes) problems() []cluster.ObjectProblem {
	n.resolve()
	return append(n.table.problems(), n.conflicts...)
}

// ready are the names of the valid nodes that are ready, sorted.
func (n *nodes) ready() (names []string) {
	for o := range n.table.list().All() {
		if _, wrong := n.wrong[o.Key()]; o.Ready && !wrong {
			names = append(names, o.Name)
		}
	}
	return names
}
