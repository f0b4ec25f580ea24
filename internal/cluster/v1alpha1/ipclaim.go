package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IPClaim is one allocated address. Its name is the address, so creating it is the allocation: of two agents that
// create the same one, the API server rejects one.
type IPClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IPClaimSpec   `json:"spec"`
	Status IPClaimStatus `json:"status,omitzero"`
}

// IPClaimList is a list of IPClaims.
type IPClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPClaim `json:"items"`
}

// IPClaimSpec says which pod has the address.
type IPClaimSpec struct {
	// Address is the address that the name is made of.
	Address string `json:"address"`
	// Pool is the IPPool that it was allocated from.
	Pool string `json:"pool"`
	// Node is where the pod runs.
	Node string `json:"node,omitempty"`
	// Pod has the address.
	Pod IPClaimPod `json:"pod,omitzero"`
	// Owner keeps the address while its pod does not run.
	Owner IPClaimOwner `json:"owner,omitzero"`
	// ContainerID and IfName are the attachment of the pod that has the address. An address without a container is kept
	// for its owner, or has a conflict.
	ContainerID string `json:"containerID,omitempty"`
	IfName      string `json:"ifName,omitempty"`
}

// IPClaimPod is the pod of a claim.
type IPClaimPod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// IPClaimOwner is the workload that keeps an address: a StatefulSet of the pod's namespace.
type IPClaimOwner struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name,omitempty"`
}

// KindStatefulSet is the only kind of owners.
const KindStatefulSet = "StatefulSet"

// IPClaimStatus says what is wrong with the address.
type IPClaimStatus struct {
	// Conflict is set when another machine of the network was found to have the address.
	Conflict *IPClaimConflict `json:"conflict,omitempty"`
}

// IPClaimConflict is when and by what a conflict was found.
type IPClaimConflict struct {
	Time metav1.Time `json:"time"`
	// Reason is a sentence, such as which MAC address replied.
	Reason string `json:"reason,omitempty"`
}
