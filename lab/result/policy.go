package result

// Policy is what a bench of NetworkPolicies measures beside the samples.
type Policy struct {
	// Policies and Pods are how many there are beside the measured ones where there are many, Blocks how many ipBlocks.
	Policies int `json:"policies"`
	Pods     int `json:"pods"`
	Blocks   int `json:"blocks"`
	// Truth says of each contender which connections work and which do not.
	Truth []Truth `json:"truth,omitempty"`
	// Tables say of each contender that has tables what was in them when it came up.
	Tables   []PolicyTables  `json:"tables,omitempty"`
	Changes  []PolicyChange  `json:"changes,omitempty"`
	Compiled []PolicyCompile `json:"compiled,omitempty"`
}

// PolicyTables is what one node, the server's, has in force.
type PolicyTables struct {
	Contender string `json:"contender"`
	// Policies are those of the cluster, LocalPods the pods of the node, and Selected those of them that some policy selects.
	Policies  int `json:"policies"`
	LocalPods int `json:"localPods"`
	Selected  int `json:"selected"`
	// Sets are sets of rules; the others are entries in the kernel: of single addresses, of prefixes, of who may be asked by whom, and of ports.
	Sets      int `json:"sets"`
	Addresses int `json:"addresses"`
	Prefixes  int `json:"prefixes"`
	Entries   int `json:"entries"`
	Ports     int `json:"ports"`
	// Bytes is what all of them hold in the kernel.
	Bytes uint64 `json:"bytes"`
}

// PolicyDirection is one of the two that a NetworkPolicy can govern.
type PolicyDirection string

// The directions.
const (
	Ingress PolicyDirection = "ingress"
	Egress  PolicyDirection = "egress"
)

// Truth is what one contender makes of the same policies.
type Truth struct {
	Contender string   `json:"contender"`
	Answers   []Answer `json:"answers"`
	// Error says why there are none.
	Error string `json:"error,omitempty"`
}

// Answer is one connection that was tried.
type Answer struct {
	Direction PolicyDirection `json:"direction"`
	// By is what the policy goes by, Case what is special about this connection.
	By       string `json:"by"`
	Case     string `json:"case,omitempty"`
	Path     Path   `json:"path"`
	Protocol string `json:"protocol"`
	From     string `json:"from"`
	To       string `json:"to"`
	Port     int    `json:"port"`
	// Want says whether it has to work, Works whether it does.
	Want  bool `json:"want"`
	Works bool `json:"works"`
	// Unknown says why that is not known. Works says nothing then.
	Unknown string `json:"unknown,omitempty"`
}

// PolicyHappening is a change whose effect on new connections is timed.
type PolicyHappening string

// The changes, each followed by the one that undoes it.
const (
	// LabelForbids and LabelAllows are a label that the client's pod loses and gets again, by which a policy selects it.
	LabelForbids PolicyHappening = "label-forbids"
	LabelAllows  PolicyHappening = "label-allows"
	// PolicyAdded is a policy that comes and forbids, PolicyRemoved its end.
	PolicyAdded   PolicyHappening = "policy-added"
	PolicyRemoved PolicyHappening = "policy-removed"
)

// PolicyChange is how long it takes until new connections obey a change of one kind, from the moment at which the API server
// has it.
type PolicyChange struct {
	Contender string          `json:"contender"`
	What      PolicyHappening `json:"what"`
	// Policies and Pods are how many there are.
	Policies     int       `json:"policies"`
	Pods         int       `json:"pods"`
	Milliseconds []float64 `json:"milliseconds"`
	// Error says why there are no more of them.
	Error string `json:"error,omitempty"`
}

// PolicyCompile is what it takes to turn policies into what is enforced.
type PolicyCompile struct {
	Contender string `json:"contender"`
	Policies  int    `json:"policies"`
	Pods      int    `json:"pods"`
	// LocalPods are those of the pods that run on the node on which this is measured.
	LocalPods int `json:"localPods"`
	// ScratchMilliseconds are those of everything from nothing, ChangeMilliseconds those of one label change: until it is
	// in the kernel's tables, without the way of the event to whoever does it. CompilerMilliseconds are the part of the first, in the same
	// order, before anything is written.
	ScratchMilliseconds  []float64 `json:"scratchMilliseconds,omitempty"`
	CompilerMilliseconds []float64 `json:"compilerMilliseconds,omitempty"`
	ChangeMilliseconds   []float64 `json:"changeMilliseconds,omitempty"`
	// TableBytes is what the tables of policy hold in the kernel.
	TableBytes uint64 `json:"tableBytes,omitempty"`
	// Source says where these come from.
	Source string `json:"source,omitempty"`
	// Error says why there is nothing.
	Error string `json:"error,omitempty"`
}
