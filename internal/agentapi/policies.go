package agentapi

import "time"

// PolicyFilter says which NetworkPolicies are asked for. What is empty leaves none out.
type PolicyFilter struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// The states of a NetworkPolicy on a node.
const (
	// PolicyInForce is that of one that is obeyed here.
	PolicyInForce = "in force"
	// PolicyClosed is that of one that is not understood, does not fit, or for which a pod lacks a program: nothing is allowed that it might
	// have a say in, or in the last case nothing that the host's stack forwards.
	PolicyClosed = "closed"
	// PolicyPending is that of one that is not in force yet, nor are its pods closed for it.
	PolicyPending = "pending"
)

// The directions of NetworkPolicies.
const (
	DirectionIngress = "ingress"
	DirectionEgress  = "egress"
)

// NetworkPolicy is a NetworkPolicy of the cluster as one node has it.
type NetworkPolicy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods are those that it selects here, as namespace/name, sorted.
	Pods []string `json:"pods"`
	// Directions are those in which it forbids what no rule allows.
	Directions []string `json:"directions"`
	// IngressRules and EgressRules count its rules.
	IngressRules int `json:"ingressRules"`
	EgressRules  int `json:"egressRules"`
	// State is one of the above, and Reason a sentence that says why it is not PolicyInForce.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Since is when it came to be in this state, as it is now; for one that an agent has found on its start, when that was.
	Since time.Time `json:"since,omitzero"`
}

// PolicyQuestion asks whether policies allow a connection.
type PolicyQuestion struct {
	// From is a pod as namespace/name, an address, or PolicyNode. To may be a Service as well, if no pod has that name; an address of
	// a Service, or a node's with a port that a Service has on all nodes, is that Service.
	From string `json:"from"`
	To   string `json:"to"`
	// Port is a number, or the name that a port has in the pod or the Service; empty for protocols without ports.
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
	// Allowed says that all ways are that are not Unused.
	Allowed bool `json:"allowed"`
	// Ways are the connections that there can be: one, or those to each backend of a Service.
	Ways []PolicyWay `json:"ways"`
}

// PolicyWay is one connection that is asked about.
type PolicyWay struct {
	// From and To name the ends.
	From string `json:"from"`
	To   string `json:"to"`
	// Service is the one, as namespace/name, whose backend To is; empty if none was asked about.
	Service string `json:"service,omitempty"`
	// SentTo is the address and port that the policies of From see, if they do not see To: a Service's, which another node or the stack makes
	// To's. SeenAs is the address that the policies of To see, if they do not see that of From: a node's, which forwards the connection.
	SentTo string `json:"sentTo,omitempty"`
	SeenAs string `json:"seenAs,omitempty"`
	// Unused says that the Service gives To no connection of From's as things are: it is not ready, or connections are for others.
	Unused  bool `json:"unused,omitempty"`
	Allowed bool `json:"allowed"`
	// Egress is what the policies of From say, Ingress those of To.
	Egress  PolicyJudgement `json:"egress"`
	Ingress PolicyJudgement `json:"ingress"`
}

// PolicyJudgement is what the policies of one end say.
type PolicyJudgement struct {
	// Pod is that end, as namespace/name; empty if it is no pod that policies can select.
	Pod     string `json:"pod,omitempty"`
	Allowed bool   `json:"allowed"`
	// Reason is what decided.
	Reason string `json:"reason"`
	// Policies are those that select the pod in this direction, as namespace/name.
	Policies []string `json:"policies,omitempty"`
	// Rules are those that allow it, Near those that allow a half of it where none allows all.
	Rules []string `json:"rules,omitempty"`
	Near  []string `json:"near,omitempty"`
}

// PolicyStatus is what a node has to do with NetworkPolicies.
type PolicyStatus struct {
	// Enforced says that this agent puts them into force.
	Enforced bool `json:"enforced"`
	// Known says that the tables have had all of them since this agent started.
	Known bool `json:"known"`
	// Policies counts those of the cluster, Closed those that are PolicyClosed, and Pending those that are not in force yet.
	Policies int `json:"policies"`
	Closed   int `json:"closed"`
	Pending  int `json:"pending"`
	// Pods counts those of this node that some policy selects, ClosedPods those of them that are closed.
	Pods       int `json:"pods"`
	ClosedPods int `json:"closedPods"`
	// Sets, Identities, Blocks, Entries and Ports count what the tables hold; Identities are those of pods, of the node, and single
	// addresses of ipBlocks.
	Sets       int `json:"sets"`
	Identities int `json:"identities"`
	Blocks     int `json:"blocks"`
	Entries    int `json:"entries"`
	Ports      int `json:"ports"`
	// ExpiredSessions counts those that were removed when they were over, since the agent started.
	ExpiredSessions uint64 `json:"expiredSessions"`
}
