// Package result is the file format of a bench run, results.json: what was measured, on what, in which
// order, with every raw sample. It holds types only; package measure fills them, package report reads them.
package result

import "time"

// FileName is the name of the file in a directory of results.
const FileName = "results.json"

// SchemaVersion changes when a field changes its meaning or disappears; added fields do not change it.
const SchemaVersion = 1

// Run is one bench run, the whole of results.json.
type Run struct {
	Schema   int       `json:"schema"`
	Version  string    `json:"version"` // of beeline, with commit
	Command  []string  `json:"command"` // as typed
	Seed     uint64    `json:"seed"`    // of the order of contenders
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	Settings Settings  `json:"settings"`

	Environment Environment `json:"environment"`
	// Cluster is the live cluster that the run was made on; nil where it was made in labs on one machine. Environment
	// is then the client's node, and contenders are ways through the cluster's network.
	Cluster *Cluster `json:"cluster,omitempty"`
	// NodePort is there in runs of the NodePort bench.
	NodePort   *NodePort   `json:"nodePort,omitempty"`
	Contenders []Contender `json:"contenders"`
	Workloads  []Workload  `json:"workloads"`
	Rounds     []Round     `json:"rounds"`
	Samples    []Sample    `json:"samples"`
	Footprints []Footprint `json:"footprints"`
	Programs   []Program   `json:"programs"`
	// Services is nil in runs that are not about them.
	Services *Services `json:"services,omitempty"`
	// Policy is there in runs of the policy bench.
	Policy *Policy `json:"policy,omitempty"`

	// What follows is derived from the above by package stats, and repeated here for readers without it.
	Summary     []Summary    `json:"summary"`
	CrossChecks []CrossCheck `json:"crossChecks"`
}

// Settings is how the run was asked for.
type Settings struct {
	Mode      string   `json:"mode"`            // quick, full, custom
	Suite     string   `json:"suite,omitempty"` // services, policy; empty is network
	Rounds    int      `json:"rounds"`
	Seconds   float64  `json:"seconds"` // of one sample, about
	Placement []string `json:"placement"`
	MTU       int      `json:"mtu"`
	IPv6      bool     `json:"ipv6"`
	// Gate is the rule, fixed before the run, by which a round is discarded.
	Gate string `json:"gate"`
}

// Environment is the machine and its tools.
type Environment struct {
	Hostname          string            `json:"hostname"`
	Kernel            string            `json:"kernel"`
	Distribution      string            `json:"distribution"`
	CPU               string            `json:"cpu"`
	CPUs              int               `json:"cpus"`
	MemoryBytes       uint64            `json:"memoryBytes"`
	Virtualization    string            `json:"virtualization,omitempty"`
	CongestionControl string            `json:"congestionControl"`
	Sysctls           map[string]string `json:"sysctls"`
	Tools             map[string]string `json:"tools"` // name → version
	Features          map[string]bool   `json:"features"`
	LoadBefore        string            `json:"loadBefore"` // /proc/loadavg
}

// Cluster is what the bench found out about a live cluster. What it could not find out is "unknown".
type Cluster struct {
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetes"`
	// CNI names the network, Evidence says by what it was recognised.
	CNI      string   `json:"cni"`
	Evidence []string `json:"evidence,omitempty"`
	// KubeProxy is its mode, or "none"; KubeProxySource says who says so.
	KubeProxy       string `json:"kubeProxy"`
	KubeProxySource string `json:"kubeProxySource"`
	// Client and Server are the nodes of the two ends; the same where the cluster has one node only.
	Client ClusterNode `json:"client"`
	Server ClusterNode `json:"server"`
	// SharedKernel says that both nodes run on one kernel, so that their CPUs are the same ones.
	SharedKernel bool `json:"sharedKernel"`
	// CPUTimes says what the CPU times of samples are of, or why there are none.
	CPUTimes string `json:"cpuTimes"`
	// Image is the one of the pods.
	Image string       `json:"image"`
	Ways  []ClusterWay `json:"ways"`
}

// ClusterNode is one node, as the API server describes it.
type ClusterNode struct {
	Name         string   `json:"name"`
	Addresses    []string `json:"addresses"`
	PodCIDRs     []string `json:"podCIDRs,omitempty"`
	Kernel       string   `json:"kernel"`
	System       string   `json:"system"`
	Runtime      string   `json:"runtime"`
	Kubelet      string   `json:"kubelet"`
	Architecture string   `json:"architecture"`
	CPU          string   `json:"cpu,omitempty"`
	CPUs         int      `json:"cpus"`
	MemoryBytes  uint64   `json:"memoryBytes"`
	Zone         string   `json:"zone,omitempty"`
}

// ClusterWay is what a contender's traffic goes through on one path.
type ClusterWay struct {
	Contender string `json:"contender"`
	Path      Path   `json:"path"`
	// Target is the address that clients connect to.
	Target string `json:"target"`
	// MTU is the largest IP packet, in bytes, that arrived unfragmented, of those that TCP sends; Segment the payload, in bytes, that TCP puts into
	// one packet; Congestion the congestion control of the client's connections.
	MTU        int    `json:"mtu"`
	Segment    int    `json:"segment"`
	Congestion string `json:"congestion"`
	// Source is the client's address, Seen what the server takes it for.
	Source string `json:"source"`
	Seen   string `json:"seen"`
	// Error says why there is no such way; its samples fail with that.
	Error string `json:"error,omitempty"`
}

// Contender is one network under test.
type Contender struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     string `json:"version,omitempty"`
	// Unsupported is empty, or says what the kernel lacks ("not on this kernel: …").
	Unsupported string `json:"unsupported,omitempty"`
	// Facts are what a reader needs to judge the comparison: MTU in the pod, rules installed, …
	Facts map[string]string `json:"facts,omitempty"`
}

// OtherBuildOf is the fact of a contender that is a network of another build. Its value is the name of the same network of the build that
// made the run: both are compared with each other.
const OtherBuildOf = "other build of"

// Workload is one tool with one set of arguments.
type Workload struct {
	Name        string `json:"name"` // tcp_stream_128k, tcp_rr, …
	Title       string `json:"title"`
	Description string `json:"description"`
	Tool        string `json:"tool"`
	// Metric is the headline metric of the samples, Unit its unit, Better is "higher" or "lower".
	Metric string `json:"metric"`
	Unit   string `json:"unit"`
	Better string `json:"better"`
	// Work is what CPU time is divided by: "transaction", "GB" or "message".
	Work string `json:"work"`
	// Of is the name of the workload that this one is with another target, and with so many Services present. The
	// baseline, which has no Services, connects to the server itself.
	Of       string `json:"of,omitempty"`
	Target   Target `json:"target,omitempty"`
	Services int    `json:"services,omitempty"`
}

// Round is one pass over all contenders in an order of its own.
type Round struct {
	Index   int       `json:"index"`
	Order   []string  `json:"order"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Steal and Foreign are shares (0…1) of the CPU time of the round that the hypervisor and processes
	// which are not the bench's took.
	Steal   float64 `json:"steal"`
	Foreign float64 `json:"foreign"`
	// Discarded is empty, or the part of the gate that the round broke as a whole.
	Discarded string `json:"discarded,omitempty"`
	// Turns are the contenders' in the order in which they were taken; one that was too noisy was taken again.
	Turns []Turn `json:"turns,omitempty"`
}

// Turn is what one contender did in a round: all its samples, one after the other.
type Turn struct {
	Contender string  `json:"contender"`
	Seconds   float64 `json:"seconds"`
	// Steal and Foreign are as those of a Round.
	Steal   float64 `json:"steal"`
	Foreign float64 `json:"foreign"`
	// Discarded is empty, or the part of the gate that the turn broke: its samples have the same.
	Discarded string `json:"discarded,omitempty"`
}

// Path says between which places the traffic of a sample went.
type Path string

// The paths.
const (
	CrossNode Path = "cross-node"
	SameNode  Path = "same-node"
)

// Placement says which CPUs the two ends ran on.
type Placement string

// The placements: the whole path pinned to one CPU, one CPU for each node, or what the nodes' schedulers choose, as in
// every pod that nobody pins.
const (
	OneCore Placement = "one-core"
	Spread  Placement = "spread"
	Free    Placement = "free"
)

// Sample is one execution of one workload over one contender.
type Sample struct {
	Round     int       `json:"round"`
	Contender string    `json:"contender"` // "node/again" is the A/A partner of "node"
	Workload  string    `json:"workload"`
	Path      Path      `json:"path"`
	Placement Placement `json:"placement"`
	Procs     int       `json:"procs"`
	Started   time.Time `json:"started"`
	Seconds   float64   `json:"seconds"`
	// Discarded is empty, or what its turn broke of the gate. Those of a round that was discarded as a whole have nothing here.
	Discarded string `json:"discarded,omitempty"`
	// Values holds the metrics by name; units as in Metrics of this package.
	Values map[string]float64 `json:"values"`
	// Latency is a histogram of round trips, where the tool gives one.
	Latency *Histogram `json:"latency,omitempty"`
	CPU     CPU        `json:"cpu"`
	Command []string   `json:"command"`
	// Error says why there are no values.
	Error string `json:"error,omitempty"`
}

// Histogram counts round trips. Bucket i holds values up to UpTo[i] microseconds.
type Histogram struct {
	UpTo  []float64 `json:"upTo"`
	Count []uint64  `json:"count"`
}

// CPU is the CPU time, in seconds, that passed during a sample on the CPUs the sample may use, by mode of /proc/stat.
type CPU struct {
	User    float64 `json:"user"`
	System  float64 `json:"system"`
	Softirq float64 `json:"softirq"`
	Steal   float64 `json:"steal"`
	Idle    float64 `json:"idle"`
}

// Footprint is what a contender costs without traffic.
type Footprint struct {
	Contender string `json:"contender"`
	// AddMilliseconds and DelMilliseconds hold one value for each CNI ADD and DEL, plugin start to result.
	AddMilliseconds []float64 `json:"addMilliseconds,omitempty"`
	DelMilliseconds []float64 `json:"delMilliseconds,omitempty"`
	// Pods is how many pods the node had when the following were read.
	Pods int `json:"pods,omitempty"`
	// AgentRSSBytes is resident memory of the node's agent, MapBytes what its BPF maps hold.
	AgentRSSBytes uint64 `json:"agentRSSBytes,omitempty"`
	MapBytes      uint64 `json:"mapBytes,omitempty"`
	// IdleCPU is the share (1 = one core) that the agent used while nothing happened.
	IdleCPU *float64 `json:"idleCPU,omitempty"`
}

// Program is the run time of one BPF program during rounds of their own (counting run time costs time).
type Program struct {
	Contender string `json:"contender"`
	Workload  string `json:"workload"`
	Path      Path   `json:"path"`
	Name      string `json:"name"`
	Runs      uint64 `json:"runs"`
	// Nanoseconds is the sum over all runs.
	Nanoseconds uint64 `json:"nanoseconds"`
	// Packets is the number of one-way packets that crossed the path meanwhile (GSO packets count once).
	Packets uint64 `json:"packets"`
}

// Summary is one figure of the report. Ratio is the median over rounds of contender ÷ node within a
// round, on the same workload, path, procs and placement; RatioLow and RatioHigh bound its 95 % interval.
// They are NaN-free: absent (null) where they cannot be had.
type Summary struct {
	Contender string    `json:"contender"`
	Workload  string    `json:"workload"`
	Path      Path      `json:"path"`
	Procs     int       `json:"procs"`
	Placement Placement `json:"placement"`
	Metric    string    `json:"metric"`
	Unit      string    `json:"unit"`
	Better    string    `json:"better"`
	Median    float64   `json:"median"`
	Low       *float64  `json:"low"`
	High      *float64  `json:"high"`
	Ratio     *float64  `json:"ratio"`
	RatioLow  *float64  `json:"ratio_low"`
	RatioHigh *float64  `json:"ratio_high"`
	N         int       `json:"n"`
}

// CrossCheck compares two tools that must agree: TCP_RR ≈ 1e6 ÷ round trip in µs.
type CrossCheck struct {
	Contender string  `json:"contender"`
	Path      Path    `json:"path"`
	What      string  `json:"what"`
	Expected  float64 `json:"expected"`
	Measured  float64 `json:"measured"`
	Agree     bool    `json:"agree"`
}
