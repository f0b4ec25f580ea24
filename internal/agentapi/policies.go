package agentapi

import "time"

// PolicyFilter selects NetworkPolicies. An empty field matches all.
type PolicyFilter struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// The states of a NetworkPolicy on a node.
const (
	// PolicyActive is the state of a policy that is enforced here.
	PolicyActive = "active"
	// PolicyClosed is the state of a policy that is invalid, does not fit, or for which a pod lacks a program. Its
	// pods are isolated in its directions; in the last case only from what the kernel stack forwards.
	PolicyClosed = "closed"
	// PolicyPending is the state of a policy that is not enforced yet, and whose pods are not isolated for it.
	PolicyPending = "pending"
)

// The directions of NetworkPolicies.
const (
	DirectionIngress = "ingress"
	DirectionEgress  = "egress"
)

// NetworkPolicy is a NetworkPolicy of the cluster with its state on one node.
type NetworkPolicy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods are the local pods that it selects, as namespace/name, sorted.
	Pods []string `json:"pods"`
	// Directions are those in which it denies what no rule allows.
	Directions []string `json:"directions"`
	// IngressRules and EgressRules count its rules.
	IngressRules int `json:"ingressRules"`
	EgressRules  int `json:"egressRules"`
	// State is one of the above, and Reason a sentence on why it is not PolicyActive.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Since is when it entered this state, in its current version; for a policy from before the agent's start, the
	// start.
	Since time.Time `json:"since,omitzero"`
}

// PolicyQuestion is a connection to check against policies.
type PolicyQuestion struct {
	// From is a pod as namespace/name, an address, or PolicyNode. To may also be a Service, if no pod has that name.
	// An address of a Service, or a node's address with a NodePort, refers to that Service.
	From string `json:"from"`
	To   string `json:"to"`
	// Port is a number, or the name of a port of the pod or the Service; empty for protocols without ports.
	Port string `json:"port,omitempty"`
	// Protocol is one of Protocols or ICMP.
	Protocol string `json:"protocol"`
}

// PolicyNode is the node itself as an end of a connection.
const PolicyNode = "node"

// ProtocolICMP is the protocol of pings.
const ProtocolICMP = "ICMP"

// PolicyAnswer says whether policies allow a connection, and why.
type PolicyAnswer struct {
	// Allowed says that all Paths are allowed that are not Unused.
	Allowed bool `json:"allowed"`
	// Paths are the possible connections: one, or one to each backend of a Service.
	Paths []PolicyPath `json:"paths"`
}

// PolicyPath is one possible connection.
type PolicyPath struct {
	// From and To name the ends.
	From string `json:"from"`
	To   string `json:"to"`
	// Service is the Service, as namespace/name, whose backend To is; empty without one.
	Service string `json:"service,omitempty"`
	// SentTo is the address and port that the policies of From see, if not To: a Service's, which another node or the
	// kernel stack translates to To. SeenAs is the address that the policies of To see, if not that of From: the
	// address of a node that forwards the connection.
	SentTo string `json:"sentTo,omitempty"`
	SeenAs string `json:"seenAs,omitempty"`
	// Unused says that the Service currently sends To no connection of From: it is not ready, or not chosen for this
	// client.
	Unused  bool `json:"unused,omitempty"`
	Allowed bool `json:"allowed"`
	// Egress is the decision of From's policies, Ingress that of To's.
	Egress  PolicyDecision `json:"egress"`
	Ingress PolicyDecision `json:"ingress"`
}

// PolicyDecision is the decision of one end's policies.
type PolicyDecision struct {
	// Pod is that end, as namespace/name; empty if it is no pod that policies can select.
	Pod     string `json:"pod,omitempty"`
	Allowed bool   `json:"allowed"`
	// Reason is what decided.
	Reason string `json:"reason"`
	// Policies select the pod in this direction, as namespace/name.
	Policies []string `json:"policies,omitempty"`
	// Rules allow the connection. Near are rules that allow a part of it, where none allows all.
	Rules []string `json:"rules,omitempty"`
	Near  []string `json:"near,omitempty"`
}

// PolicyStatus is the state of NetworkPolicies on a node.
type PolicyStatus struct {
	// Enforced says that this agent enforces them.
	Enforced bool `json:"enforced"`
	// Synced says that the tables have had all of them since this agent started.
	Synced bool `json:"synced"`
	// Policies counts all policies of the cluster, Closed the PolicyClosed ones, Pending the PolicyPending ones.
	Policies int `json:"policies"`
	Closed   int `json:"closed"`
	Pending  int `json:"pending"`
	// Pods counts the local pods that some policy selects, ClosedPods those of them that are isolated.
	Pods       int `json:"pods"`
	ClosedPods int `json:"closedPods"`
	// Sets, Identities, Blocks, Entries and Ports count entries of the tables; Identities are those of pods and of the
	// node.
	Sets       int `json:"sets"`
	Identities int `json:"identities"`
	Blocks     int `json:"blocks"`
	Entries    int `json:"entries"`
	Ports      int `json:"ports"`
}
