// Package result is the format of results.json, the file of one bench run: every raw sample, the machine, the order of
// measurement and the derived figures. It holds types only: package round writes them, package report reads them.
package result

import "time"

// FileName is the name of the result file in a results directory.
const FileName = "results.json"

// SchemaVersion changes when a field changes its meaning or is removed. A new field does not change it.
const SchemaVersion = 1

// Run is one bench run: the whole of results.json.
type Run struct {
	Schema int `json:"schema"`
	// Version is the version of Beeline with its commit, Command the command line.
	Version string   `json:"version"`
	Command []string `json:"command"`
	// Seed determines the random order of networks.
	Seed     uint64    `json:"seed"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	Settings Settings  `json:"settings"`

	Environment Environment `json:"environment"`
	// Cluster describes the cluster of a run with --kubeconfig; Environment is then the client's node, and the networks
	// are routes through the cluster's network. It is nil for a run in a lab on one machine.
	Cluster    *Cluster    `json:"cluster,omitempty"`
	Networks   []Network   `json:"networks"`
	Workloads  []Workload  `json:"workloads"`
	Rounds     []Round     `json:"rounds"`
	Samples    []Sample    `json:"samples"`
	Footprints []Footprint `json:"footprints"`
	Programs   []Program   `json:"programs"`
	// Services, NodePort, Policy and Encryption are set by the suites of these names.
	Services *Services `json:"services,omitempty"`
	NodePort *NodePort `json:"nodePort,omitempty"`
	Policy   *Policy   `json:"policy,omitempty"`
	// Encryption is nil in runs of other suites.
	Encryption *Encryption `json:"encryption,omitempty"`

	// Summary and CrossChecks are derived from the samples by package stats, for readers without it.
	Summary     []Summary    `json:"summary"`
	CrossChecks []CrossCheck `json:"crossChecks"`
}

// Settings are the parameters of the run.
type Settings struct {
	// Mode is quick, full or custom. Suite is services, nodeport, policy or encryption; empty means
	// network.
	Mode  string `json:"mode"`
	Suite string `json:"suite,omitempty"`
	// Rounds is the number of rounds to keep, Seconds the approximate length of one sample.
	Rounds    int      `json:"rounds"`
	Seconds   float64  `json:"seconds"`
	Placement []string `json:"placement"`
	// MTU is that of the wire, in bytes; 0 if it differs between workloads.
	MTU  int  `json:"mtu"`
	IPv6 bool `json:"ipv6"`
	// Gate is the rule, fixed before the run, by which a round is discarded.
	Gate string `json:"gate"`
}

// Environment describes the machine and its tools.
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
	// Tools maps the name of a tool to its version.
	Tools    map[string]string `json:"tools"`
	Features map[string]bool   `json:"features"`
	// LoadBefore is the content of /proc/loadavg before the run.
	LoadBefore string `json:"loadBefore"`
}

// Cluster describes a Kubernetes cluster. A property that could not be determined is "unknown".
type Cluster struct {
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetes"`
	// CNI is the name of the cluster's network, Evidence the objects that identified it.
	CNI      string   `json:"cni"`
	Evidence []string `json:"evidence,omitempty"`
	// KubeProxy is its mode, or "none"; KubeProxySource is the object that showed it.
	KubeProxy       string `json:"kubeProxy"`
	KubeProxySource string `json:"kubeProxySource"`
	// Client and Server are the nodes of the two ends: the same one in a cluster with one node.
	Client ClusterNode `json:"client"`
	Server ClusterNode `json:"server"`
	// SharedKernel reports that both nodes run on one kernel and so on the same CPUs.
	SharedKernel bool `json:"sharedKernel"`
	// CPUTimes describes what the CPU times of samples include, or why there are none.
	CPUTimes string `json:"cpuTimes"`
	// Image is the image of the bench pods.
	Image  string         `json:"image"`
	Routes []ClusterRoute `json:"routes"`
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

// ClusterRoute is the route that the traffic of one network takes on one path.
type ClusterRoute struct {
	Network string `json:"network"`
	Path    Path   `json:"path"`
	// Target is the address that clients connect to.
	Target string `json:"target"`
	// MTU is the size, in bytes, of the largest IP packet of TCP that arrived unfragmented. Segment is the payload, in
	// bytes, of one TCP packet. Congestion is the congestion control of the client's connections.
	MTU        int    `json:"mtu"`
	Segment    int    `json:"segment"`
	Congestion string `json:"congestion"`
	// Source is the client's address, ServerSees the client's address as the server sees it.
	Source     string `json:"source"`
	ServerSees string `json:"serverSees"`
	// Error is the reason why the route does not exist. The samples of the route fail with it.
	Error string `json:"error,omitempty"`
}

// Network is one network under test.
type Network struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     string `json:"version,omitempty"`
	// Unsupported is empty, or names what the kernel lacks ("not on this kernel: …").
	Unsupported string `json:"unsupported,omitempty"`
	// Facts maps a property that affects the comparison to its value: the MTU in the pod, installed rules, …
	Facts map[string]string `json:"facts,omitempty"`
}

// OtherBuildOf is the fact of a network of another build. Its value is the name of the same network of the build that made
// the run. The report compares the two.
const OtherBuildOf = "other build of"

// Workload is one tool with one set of arguments.
type Workload struct {
	// Name is the identifier: tcp_stream_128k, tcp_rr, …
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Tool        string `json:"tool"`
	// Metric is the headline metric of the samples, Unit its unit, Better is "higher" or "lower".
	Metric string `json:"metric"`
	Unit   string `json:"unit"`
	Better string `json:"better"`
	// Work is the unit of work that CPU time is divided by: "transaction", "GB" or "message".
	Work string `json:"work"`
	// Of is the name of the workload of which this one is a variant: with another Target and number of Services, or MTU.
	// The baseline has no Services and connects to the server's own address.
	Of       string `json:"of,omitempty"`
	Target   Target `json:"target,omitempty"`
	Services int    `json:"services,omitempty"`
	// MTU is that of the wire, in bytes, where workloads differ in it.
	MTU int `json:"mtu,omitempty"`
}

// Round is one pass over all networks in a random order.
type Round struct {
	Index   int       `json:"index"`
	Order   []string  `json:"order"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Steal and Foreign are the shares (0…1) of the round's CPU time that went to the hypervisor and to processes
	// outside the bench.
	Steal   float64 `json:"steal"`
	Foreign float64 `json:"foreign"`
	// Discarded is empty, or the part of the gate that the whole round failed.
	Discarded string `json:"discarded,omitempty"`
	// Turns are in the order of measurement. A network whose turn was discarded has another turn later.
	Turns []Turn `json:"turns,omitempty"`
}

// Turn is one network's part of a round: all its samples in sequence.
type Turn struct {
	Network string  `json:"network"`
	Seconds float64 `json:"seconds"`
	// Steal and Foreign are shares (0…1) of the turn's CPU time, as in Round.
	Steal   float64 `json:"steal"`
	Foreign float64 `json:"foreign"`
	// Discarded is empty, or the part of the gate that the turn failed. Its samples have the same value.
	Discarded string `json:"discarded,omitempty"`
}

// Path is the location of the two ends of a sample's traffic.
type Path string

// The paths.
const (
	CrossNode Path = "cross-node"
	SameNode  Path = "same-node"
)

// Placement is the assignment of CPUs to the two ends.
type Placement string

// The placements: one CPU for the whole path, one CPU for each node, or the choice of the nodes' schedulers.
const (
	OneCore Placement = "one-core"
	Spread  Placement = "spread"
	Free    Placement = "free"
)

// Sample is one execution of one workload over one network.
type Sample struct {
	Round int `json:"round"`
	// Network is the network's name; "node/again" is the second measurement of "node" for the A/A check.
	Network   string    `json:"network"`
	Workload  string    `json:"workload"`
	Path      Path      `json:"path"`
	Placement Placement `json:"placement"`
	// Procs is the number of parallel client processes.
	Procs   int       `json:"procs"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Discarded is empty, or the part of the gate that the sample's turn failed. It stays empty in a round that was
	// discarded as a whole.
	Discarded string `json:"discarded,omitempty"`
	// Values maps a metric to its value, in the unit that Metrics gives.
	Values map[string]float64 `json:"values"`
	// Latency is a histogram of round trips, for tools that measure one.
	Latency *Histogram `json:"latency,omitempty"`
	CPU     CPU        `json:"cpu"`
	Command []string   `json:"command"`
	// Error is the reason why there are no values.
	Error string `json:"error,omitempty"`
}

// Histogram counts round trips. Bucket i counts values above UpTo[i-1] and up to UpTo[i] microseconds.
type Histogram struct {
	UpTo  []float64 `json:"upTo"`
	Count []uint64  `json:"count"`
}

// CPU is the CPU time, in seconds, of the CPUs of a sample while it ran, by mode of /proc/stat.
type CPU struct {
	User    float64 `json:"user"`
	System  float64 `json:"system"`
	Softirq float64 `json:"softirq"`
	Steal   float64 `json:"steal"`
	Idle    float64 `json:"idle"`
}

// Footprint is the cost of a network without traffic.
type Footprint struct {
	Network string `json:"network"`
	// AddMilliseconds and DelMilliseconds have one value per CNI ADD and DEL, from the start of the plugin to its result.
	AddMilliseconds []float64 `json:"addMilliseconds,omitempty"`
	DelMilliseconds []float64 `json:"delMilliseconds,omitempty"`
	// ProbedAddMilliseconds has one value per CNI ADD of a pod whose address is probed on the wire first.
	ProbedAddMilliseconds []float64 `json:"probedAddMilliseconds,omitempty"`
	// Pods is the number of pods on the node when the following were read.
	Pods int `json:"pods,omitempty"`
	// AgentRSSBytes is the resident memory of the agent, MapBytes the memory of its BPF maps.
	AgentRSSBytes uint64 `json:"agentRSSBytes,omitempty"`
	MapBytes      uint64 `json:"mapBytes,omitempty"`
	// IdleCPU is the CPU share (1 = one core) of the agent without events; nil if it was not measured.
	IdleCPU *float64 `json:"idleCPU,omitempty"`
}

// Program is the run time of one BPF program. It comes from rounds of its own, because the kernel's statistics cost time.
type Program struct {
	Network  string `json:"network"`
	Workload string `json:"workload"`
	Path     Path   `json:"path"`
	Name     string `json:"name"`
	Runs     uint64 `json:"runs"`
	// Nanoseconds is the sum over all runs.
	Nanoseconds uint64 `json:"nanoseconds"`
	// Packets is the number of one-way packets on the path meanwhile. A GSO packet counts once.
	Packets uint64 `json:"packets"`
}

// Summary is one figure of the report. Low and High bound the 95 % interval of Median. Ratio is the median over rounds of
// network ÷ node within a round, for the same workload, path, procs and placement; RatioLow and RatioHigh bound its 95 %
// interval. A value that does not exist is nil (null), never NaN.
type Summary struct {
	Network   string    `json:"network"`
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
	// N is the number of values of Median.
	N int `json:"n"`
}

// CrossCheck compares two figures that must agree, both per second: TCP_RR ≈ 1e6 ÷ round trip in µs.
type CrossCheck struct {
	Network  string  `json:"network"`
	Path     Path    `json:"path"`
	Check    string  `json:"check"`
	Expected float64 `json:"expected"`
	Measured float64 `json:"measured"`
	Agree    bool    `json:"agree"`
}
