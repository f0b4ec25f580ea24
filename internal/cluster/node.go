package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Node is one node of the cluster, reduced to what the network needs.
type Node struct {
	Name string
	// Addresses are the InternalIP addresses of status.addresses, in their order.
	Addresses []netip.Addr
	// ExternalIPs are the ExternalIP addresses of status.addresses. A cloud may give a node one that no device of it holds.
	ExternalIPs []netip.Addr
	// PodCIDRs are spec.podCIDRs (or spec.podCIDR), at most one of each family.
	PodCIDRs []netip.Prefix
	// Zone is where the node is, as the hints of endpoints name it (label topology.kubernetes.io/zone); empty if nobody says.
	Zone string
	// Lost are addresses of the object that another Node has got, which claims them too: see NodeSet.
	Lost []netip.Addr
	// Leaving says that the node is about to be removed: load balancers should not send anything new to it.
	Leaving bool
}

// taintToBeDeleted is what the cluster autoscaler gives to a node before it removes the machine.
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// nodeObject is a Node and where its parts stand in the object: the fields of each address and CIDR, in the order of Node.
type nodeObject struct {
	Node
	addressField, cidrField []string
	// ready is its condition Ready, and created when the object was made. They decide between Nodes that claim the same; snapshots do not
	// have them, since nodes come and go being ready.
	ready   bool
	created time.Time
	// place tells where: see document.place. Nil for objects that are in no file.
	place *place
}

// reduceNode checks a Node by itself and reduces it. What it may not share with other nodes is checked by settle.
func reduceNode(n *corev1.Node) (nodeObject, []fieldError) {
	var c checks
	object := nodeObject{Node: Node{Name: n.Name, Zone: intern(n.Labels[corev1.LabelTopologyZone])}, created: n.CreationTimestamp.UTC()}
	object.ready = slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	c.name(n.Name, validation.IsDNS1123Subdomain)
	object.Leaving = n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintToBeDeleted })
	for i, a := range n.Status.Addresses {
		field := fmt.Sprintf("status.addresses[%d].address", i)
		if a.Type == corev1.NodeExternalIP {
			// Nothing depends on it enough to refuse the node for one that is wrong.
			if addr, err := netip.ParseAddr(a.Address); err == nil {
				object.ExternalIPs = append(object.ExternalIPs, addr.Unmap())
			}
		}
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if addr, ok := c.address(field, a.Address, "a node"); ok {
			object.Addresses = append(object.Addresses, addr)
			object.addressField = append(object.addressField, field)
		}
	}

	fields, cidrs := podCIDRs(n)
	if n.Spec.PodCIDR != "" && len(n.Spec.PodCIDRs) > 0 && n.Spec.PodCIDR != n.Spec.PodCIDRs[0] {
		c.fail("spec.podCIDR", "%s is not the first of spec.podCIDRs, %s", n.Spec.PodCIDR, n.Spec.PodCIDRs[0])
	}
	families := map[int]netip.Prefix{}
	for i, text := range cidrs {
		prefix, ok := c.prefix(fields[i], text)
		if !ok {
			continue
		}
		if other, twice := families[prefix.Addr().BitLen()]; twice {
			c.fail(fields[i], "%s is of the same family as %s, one of each is allowed", prefix, other)
			continue
		}
		families[prefix.Addr().BitLen()] = prefix
		object.PodCIDRs = append(object.PodCIDRs, prefix)
		object.cidrField = append(object.cidrField, fields[i])
	}
	return object, c.errs
}

// podCIDRs gives the node's ranges and the field of each; spec.podCIDR counts when it stands alone.
func podCIDRs(n *corev1.Node) (fields, cidrs []string) {
	if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
		return []string{"spec.podCIDR"}, []string{n.Spec.PodCIDR}
	}
	for i := range n.Spec.PodCIDRs {
		fields = append(fields, fmt.Sprintf("spec.podCIDRs[%d]", i))
	}
	return fields, n.Spec.PodCIDRs
}

// Key gives the name.
func (n *Node) Key() Key { return Key{Name: n.Name} }

// EqualNodes tells whether two lists of nodes say the same.
func EqualNodes(a, b []Node) bool {
	return slices.EqualFunc(a, b, func(x, y Node) bool { return x.Equal(&y) })
}

// Equal tells whether a node says the same as another.
func (n *Node) Equal(other *Node) bool {
	return n.Name == other.Name && n.Zone == other.Zone && n.Leaving == other.Leaving && slices.Equal(n.Addresses, other.Addresses) &&
		slices.Equal(n.ExternalIPs, other.ExternalIPs) && slices.Equal(n.PodCIDRs, other.PodCIDRs) && slices.Equal(n.Lost, other.Lost)
}

// DifferentNodes visits the nodes that differ between two lists, which are sorted by name, in that order. What is in one of them only is nil for the other.
func DifferentNodes(before, after []Node, visit func(before, after *Node)) {
	for len(before) > 0 || len(after) > 0 {
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		case !before[0].Equal(&after[0]):
			order = strings.Compare(before[0].Name, after[0].Name)
		default:
			before, after = before[1:], after[1:]
			continue
		}
		var was, is *Node
		if order <= 0 {
			was, before = &before[0], before[1:]
		}
		if order >= 0 {
			is, after = &after[0], after[1:]
		}
		visit(was, is)
	}
}
