package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// Node is one node of the cluster, reduced to what the network needs.
type Node struct {
	Name string
	// Addresses are the InternalIP addresses of status.addresses, in their order.
	Addresses []netip.Addr
	// ExternalIPs are the ExternalIP addresses of status.addresses. In a cloud, no device of the node may have them.
	ExternalIPs []netip.Addr
	// PodCIDRs are spec.podCIDRs (or spec.podCIDR), at most one of each family.
	PodCIDRs []netip.Prefix
	// Zone is the node's zone (label topology.kubernetes.io/zone), for the hints of endpoints; empty if unset.
	Zone string
	// Lost are addresses of the object that belong to another Node with the same address: see NodeSet.
	Lost []netip.Addr
	// Created decides between its ranges and addresses of IPPools that pods have.
	Created time.Time
	// Leaving says that the node is about to be removed: load balancers should send it nothing new.
	Leaving bool
	// OutOfService says that an administrator, or the cloud, vouches that the machine runs nothing any more.
	OutOfService bool
	Announced
	// Recovered says that the node is known from the datapath only.
	Recovered bool
	// Labels are those of this node; an API server's source does not keep those of others.
	Labels Labels
}

// Announced is what a node's agent tells the others in annotations of its Node: see v1alpha1. It is not checked.
type Announced struct {
	// WireGuardKey is the node's public key in base64; empty without.
	WireGuardKey string
	// IPsec says what the keys of IPsec are derived from; empty without.
	IPsec string
}

// AnnouncedBy reads the annotations of a Node.
func AnnouncedBy(n *corev1.Node) Announced {
	return Announced{WireGuardKey: n.Annotations[v1alpha1.AnnotationWireGuardKey], IPsec: n.Annotations[v1alpha1.AnnotationIPsec]}
}

// Annotations are those of a Node whose agent announces this; the value of what it does not announce is empty.
func (a Announced) Annotations() map[string]string {
	return map[string]string{v1alpha1.AnnotationWireGuardKey: a.WireGuardKey, v1alpha1.AnnotationIPsec: a.IPsec}
}

// taintToBeDeleted is the cluster autoscaler's taint on a node that it removes.
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// NodeObject is a Node that is valid by itself, with the field path of each address and CIDR, in the order of Node.
type NodeObject struct {
	Node
	addressField, cidrField []string
	// Ready is the condition Ready. It decides conflicts between Nodes, with the creation time. Snapshots do not have it, because it changes
	// often.
	Ready bool
}

// EqualButReady reports whether two Nodes differ in readiness at most.
func (n *NodeObject) EqualButReady(other *NodeObject) bool {
	compared := *n
	compared.Ready = other.Ready
	return Equal(compared, *other)
}

// reduceNode checks a single Node and reduces it. ResolveNodes and resolve look for conflicts with other Nodes.
func reduceNode(n *corev1.Node) (*NodeObject, []fieldError) {
	var c checks
	object := &NodeObject{Node: Node{Name: n.Name, Zone: Intern(n.Labels[corev1.LabelTopologyZone]), Labels: NewLabels(n.Labels), Created: n.CreationTimestamp.UTC()}}
	object.Announced = AnnouncedBy(n)
	object.Ready = slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	c.name(n.Name, validation.IsDNS1123Subdomain)
	object.Leaving = n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintToBeDeleted })
	object.OutOfService = IsOutOfService(n)
	for i, a := range n.Status.Addresses {
		field := fmt.Sprintf("status.addresses[%d].address", i)
		if a.Type == corev1.NodeExternalIP {
			// An invalid one is not worth rejecting the whole node.
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

// IsOutOfService reports whether a Node has the taint that says so.
func IsOutOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// podCIDRs gives the node's ranges and the field of each; spec.podCIDR is used if spec.podCIDRs is empty.
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

// EqualNodes reports whether two lists of nodes are equal.
func EqualNodes(a, b []Node) bool {
	return slices.EqualFunc(a, b, func(x, y Node) bool { return x.Equal(&y) })
}

// Equal reports whether two nodes are equal.
func (n *Node) Equal(other *Node) bool {
	return n.Name == other.Name && n.Zone == other.Zone && n.Leaving == other.Leaving && n.OutOfService == other.OutOfService && n.Labels == other.Labels && n.Announced == other.Announced && n.Recovered == other.Recovered && n.Created.Equal(other.Created) && slices.Equal(n.Addresses, other.Addresses) &&
		slices.Equal(n.ExternalIPs, other.ExternalIPs) && slices.Equal(n.PodCIDRs, other.PodCIDRs) && slices.Equal(n.Lost, other.Lost)
}

// DifferentNodes visits the nodes that differ between two lists sorted by name, in that order; nil stands for a
// missing one.
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
