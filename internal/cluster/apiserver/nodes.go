package apiserver

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// nodes is the section of Nodes, which may conflict with each other. It keeps more of this node's own Node.
type nodes struct {
	self   string
	all    cluster.NodeSet
	listed bool
	own    *ownNode

	resolved   bool
	list       []cluster.Node
	wrong      []cluster.NodeProblem
	incomplete bool
}

// ownNode is what the Reporter needs of this node's object.
type ownNode struct {
	// condition is the NetworkUnavailable condition of the object; empty if there is none.
	condition Condition
	// taints are all taints of the object at this version.
	taints  []corev1.Taint
	version string
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
	own := &ownNode{taints: n.Spec.Taints, version: n.ResourceVersion}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable {
			own.condition = Condition{Status: string(c.Status), Reason: c.Reason, Message: c.Message}
		}
	}
	return own
}

func (n *nodes) set(item *item) bool {
	if item.key.Name == n.self {
		n.own = item.own
	}
	node, _ := item.reduced.(*cluster.NodeObject)
	changed := n.all.Set(item.key.Name, node, item.err, !n.listed)
	n.resolved = n.resolved && !changed
	return changed
}

func (n *nodes) remove(key cluster.Key) bool {
	if key.Name == n.self {
		n.own = nil
	}
	changed := n.all.Delete(key.Name)
	n.resolved = n.resolved && !changed
	return changed
}

func (n *nodes) replace(items []*item) bool {
	there := make(map[string]bool, len(items))
	changed := false
	for _, item := range items {
		there[item.key.Name] = true
		changed = n.set(item) || changed
	}
	for _, name := range n.all.Names() {
		if !there[name] {
			changed = n.remove(cluster.Key{Name: name}) || changed
		}
	}
	n.listed = true
	return changed
}

// resolve gives the resolved nodes: the same slice until something changes.
func (n *nodes) resolve() (list []cluster.Node, incomplete bool) {
	if !n.resolved {
		list, wrong, incomplete := n.all.Resolve()
		if n.list == nil || !cluster.EqualNodes(list, n.list) {
			n.list = list
		}
		n.wrong, n.incomplete, n.resolved = wrong, incomplete, true
	}
	return n.list, n.incomplete
}

func (n *nodes) problems() []invalidObject {
	n.resolve()
	var all []invalidObject
	for _, p := range n.wrong {
		all = append(all, invalidObject{key: cluster.Key{Name: p.Node}, uid: p.Node, text: p.Text, stays: p.Invalid})
	}
	return all
}
