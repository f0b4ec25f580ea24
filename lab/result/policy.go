package result

// Policy holds what the policy suite measures beside the samples.
type Policy struct {
	// Policies, Pods and IPBlocks are the numbers of background objects in the workloads that have many.
	Policies int `json:"policies"`
	Pods     int `json:"pods"`
	IPBlocks int `json:"ipBlocks"`
	// Connectivity has one entry per network that enforces NetworkPolicies.
	Connectivity []Connectivity `json:"connectivity,omitempty"`
	// Tables has one entry per network that can show its tables, read when the network came up.
	Tables      []PolicyTables      `json:"tables,omitempty"`
	Convergence []PolicyConvergence `json:"convergence,omitempty"`
	Compiled    []PolicyCompile     `json:"compiled,omitempty"`
}

// PolicyTables are the policy tables of one node, the server's.
type PolicyTables struct {
	Network string `json:"network"`
	// Policies is the number of NetworkPolicies in the cluster, LocalPods the number of pods on the node, and Selected
	// the number of these that a NetworkPolicy selects.
	Policies  int `json:"policies"`
	LocalPods int `json:"localPods"`
	Selected  int `json:"selected"`
	// Sets counts distinct sets of rules. The others count entries in the kernel: single addresses, prefixes, pairs of
	// rule set and identity, and ports.
	Sets      int `json:"sets"`
	Addresses int `json:"addresses"`
	Prefixes  int `json:"prefixes"`
	Entries   int `json:"entries"`
	Ports     int `json:"ports"`
	// Bytes is the kernel memory of all policy tables.
	Bytes uint64 `json:"bytes"`
}

// PolicyDirection is the direction that a NetworkPolicy applies to.
type PolicyDirection string

// The directions of a NetworkPolicy.
const (
	Ingress PolicyDirection = "ingress"
	Egress  PolicyDirection = "egress"
)

// Connectivity is the set of connections that were tried on one network, all under the same NetworkPolicies.
type Connectivity struct {
	Network     string       `json:"network"`
	Connections []Connection `json:"connections"`
	// Error is the reason why there are none.
	Error string `json:"error,omitempty"`
}

// Connection is one connection that was tried.
type Connection struct {
	Direction PolicyDirection `json:"direction"`
	// Rule is the kind of policy rule under test, Case the property of this connection that matters to it.
	Rule     string `json:"rule"`
	Case     string `json:"case,omitempty"`
	Path     Path   `json:"path"`
	Protocol string `json:"protocol"`
	From     string `json:"from"`
	To       string `json:"to"`
	Port     int    `json:"port"`
	// Allowed is the expected outcome, Connected the observed one.
	Allowed   bool `json:"allowed"`
	Connected bool `json:"connected"`
	// Unknown is the reason why the outcome is not known. Connected has no meaning then.
	Unknown string `json:"unknown,omitempty"`
}

// PolicyChange is a kind of change whose effect on new connections is timed.
type PolicyChange string

const (
	// LabelDenies removes a label from the client's pod, so that no policy allows it; LabelAllows restores the label.
	LabelDenies PolicyChange = "label-denies"
	LabelAllows PolicyChange = "label-allows"
	// PolicyAdded adds a policy that denies, PolicyRemoved removes it.
	PolicyAdded   PolicyChange = "policy-added"
	PolicyRemoved PolicyChange = "policy-removed"
)

// PolicyConvergence is the time from when the API server has a change until new connections obey it.
type PolicyConvergence struct {
	Network string       `json:"network"`
	Change  PolicyChange `json:"change"`
	// Policies and Pods are the numbers of NetworkPolicies and pods in the cluster.
	Policies int `json:"policies"`
	Pods     int `json:"pods"`
	// Milliseconds has one value per change.
	Milliseconds []float64 `json:"milliseconds"`
	// Error is the reason why values are missing.
	Error string `json:"error,omitempty"`
}

// PolicyCompile is the time that a node needs to turn NetworkPolicies into kernel tables.
type PolicyCompile struct {
	Network  string `json:"network"`
	Policies int    `json:"policies"`
	Pods     int    `json:"pods"`
	// LocalPods is the number of pods on the measured node.
	LocalPods int `json:"localPods"`
	// FullMilliseconds is the time from an empty start until all tables are written. CompilerMilliseconds is the part of
	// it before the first write, in the same order. ChangeMilliseconds is the time of one label change until the tables
	// are written, without the delivery of the event.
	FullMilliseconds     []float64 `json:"fullMilliseconds,omitempty"`
	CompilerMilliseconds []float64 `json:"compilerMilliseconds,omitempty"`
	ChangeMilliseconds   []float64 `json:"changeMilliseconds,omitempty"`
	// TableBytes is the kernel memory of the policy tables.
	TableBytes uint64 `json:"tableBytes,omitempty"`
	// Source describes how the values were measured.
	Source string `json:"source,omitempty"`
	// Error is the reason why values are missing.
	Error string `json:"error,omitempty"`
}
