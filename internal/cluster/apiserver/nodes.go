package apiserver

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// nodes is the section of Nodes, which may contradict each other, and of this node's own Node, of which more is kept.
type nodes struct {
	self   string
	all    cluster.NodeSet
	listed bool
	own    *ownNode

	settled    bool
	list       []cluster.Node
	wrong      []cluster.NodeProblem
	incomplete bool
}

// ownNode is what the Reporter needs to know of this node's object.
type ownNode struct {
	// condition is what the object says of the network; empty fields if it says nothing.
	condition Condition
	// taints are all that the object has, at this version of it.
	taints  []corev1.Taint
	version string
}

// Condition is a node condition NetworkUnavailable.
type Condition struct {
	// Status is "True" while the node cannot have pods with a network, "False" when it can; empty if nobody has said.
	Status string
	// Reason is one word in CamelCase, Message a sentence.
	Reason, Message string
}

// readOwn picks what is kept of this node's object only.
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
	n.settled = n.settled && !changed
	return changed
}

func (n *nodes) remove(key cluster.Key) bool {
	if key.Name == n.self {
		n.own = nil
	}
	changed := n.all.Delete(key.Name)
	n.settled = n.settled && !changed
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

// settle gives the nodes in force: the same slice until something changes.
func (n *nodes) settle() (list []cluster.Node, incomplete bool) {
	if !n.settled {
		list, wrong, incomplete := n.all.Settle()
		if n.list == nil || !cluster.EqualNodes(list, n.list) {
			n.list = list
		}
		n.wrong, n.incomplete, n.settled = wrong, incomplete, true
	}
	return n.list, n.incomplete
}

func (n *nodes) problems() []wrongObject {
	n.settle()
	var all []wrongObject
	for _, p := range n.wrong {
		all = append(all, wrongObject{key: cluster.Key{Name: p.Node}, uid: p.Node, text: p.Text, stays: p.Wrong})
	}
	return all
}
