// Package v1alpha1 has Beeline's own kinds of objects, as the API server stores them.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationIPPool names the IPPools of a pod, or of the pods of a namespace: comma-separated, in the order in which
// they are tried. NoIPPool means an address of the cluster's pod range.
const (
	AnnotationIPPool = "networking.beeline.dev/ippool"
	NoIPPool         = "none"
)

// AnnotationWireGuardKey is the public key of WireGuard of a Node, in base64. The node's agent writes it.
const AnnotationWireGuardKey = "networking.beeline.dev/wireguard-public-key"

// AnnotationIPsec is what the node's agent tells the others, for them to derive the keys of IPsec. It is no secret.
const AnnotationIPsec = "networking.beeline.dev/ipsec"

// AnnotationDevice is the kind of a pod's device.
const AnnotationDevice = "networking.beeline.dev/device"

// IPPool is a set of addresses of a physical network that pods may have.
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IPPoolSpec   `json:"spec"`
	Status IPPoolStatus `json:"status,omitzero"`
}

// IPPoolList is a list of IPPools.
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPPool `json:"items"`
}

// IPPoolSpec says which addresses a pool has, and which pods may have them.
type IPPoolSpec struct {
	// Subnets are the CIDRs of the physical network, at most one of each family.
	Subnets []string `json:"subnets"`
	// Ranges are the parts of the subnets that pods may have: CIDRs, addresses, or "first-last". A family without ranges
	// has its whole subnet.
	Ranges []string `json:"ranges,omitempty"`
	// Exclude are parts that pods never have, in the same form.
	Exclude []string `json:"exclude,omitempty"`
	// Gateways are the routers of the subnets, at most one of each family. Pods send by them to other networks, also those whose
	// router is their node.
	Gateways []string `json:"gateways,omitempty"`
	// Routes are further routes of the pods.
	Routes []IPPoolRoute `json:"routes,omitempty"`

	// Uplink is the node's device in the physical network: its name, or one of its addresses. Empty means the device
	// that has an address in a subnet.
	Uplink string `json:"uplink,omitempty"`
	// VLAN is the tag of the pods' frames on the uplink, whose VLAN device the nodes make; 0 means none. Without an uplink it is on
	// the node's uplink to the other nodes.
	VLAN int32 `json:"vlan,omitempty"`
	// Device is the kind of the pods' devices: macvlan, veth or netkit. Empty means the node's.
	Device string `json:"device,omitempty"`

	// NamespaceSelector, PodSelector and NodeSelector restrict which pods may have addresses of the pool.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	NodeSelector      *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// Default says that pods without another pool get addresses of this one.
	Default bool `json:"default,omitempty"`
	// Disabled says that the pool gives no new addresses.
	Disabled bool `json:"disabled,omitempty"`
	// Probe says that a new address is given only after no machine of the network has answered for it; missing means true.
	Probe *bool `json:"probe,omitempty"`
	// NamespaceMax is how many addresses of each family the pods of one namespace may have. 0 means as many as are free
	// for others.
	NamespaceMax int32 `json:"namespaceMax,omitempty"`
}

// IPPoolRoute is a route of the pods of a pool.
type IPPoolRoute struct {
	To  string `json:"to"`
	Via string `json:"via"`
}

// IPPoolStatus is how much of a pool is in use, and what is wrong with it.
type IPPoolStatus struct {
	// Total, Allocated and Free are those of the family with the fewest free addresses.
	Total     int64 `json:"total"`
	Allocated int64 `json:"allocated"`
	Free      int64 `json:"free"`

	IPv4       *IPPoolCounts      `json:"ipv4,omitempty"`
	IPv6       *IPPoolCounts      `json:"ipv6,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IPPoolCounts counts the addresses of one family, at most 9,223,372,036,854,775,807.
type IPPoolCounts struct {
	// Total are the addresses that the pool may give, Free those of them without a claim.
	Total int64 `json:"total"`
	// Allocated are the claims of the pool. Those outside of its ranges stay until their pods end.
	Allocated int64 `json:"allocated"`
	Free      int64 `json:"free"`
	// Conflicts are addresses that another machine of the network was found to have.
	Conflicts int64 `json:"conflicts,omitempty"`
}

// The conditions of an IPPool.
const (
	// ConditionValid: the spec is valid.
	ConditionValid = "Valid"
	// ConditionExhausted: a family has no free address.
	ConditionExhausted = "Exhausted"
	// ConditionOverlapping: some of its addresses belong to an older pool, a pod range, or a node, and are not given.
	ConditionOverlapping = "Overlapping"
)
