package result

// Metric names a value of Sample.Values or of Summary.
type Metric struct {
	Name   string
	Unit   string
	Better string // "higher", "lower", or empty where neither is better
	// Meaning is one sentence.
	Meaning string
}

// The metrics that tools measure, as they are named in Sample.Values.
const (
	Throughput     = "throughput"
	Rate           = "rate"
	RTT            = "rtt"
	RTTP50         = "rtt_p50"
	RTTP90         = "rtt_p90"
	RTTP99         = "rtt_p99"
	RTTP999        = "rtt_p999"
	Loss           = "loss"
	Retransmits    = "retransmits"
	Transactions   = "transactions"
	Bytes          = "bytes"
	Messages       = "messages"
	Skew           = "skew"
	SendBuffer     = "send_buffer"
	ReceiveBuffer  = "receive_buffer"
	CPUTransaction = "cpu_per_transaction"
	CPUGB          = "cpu_per_gb"
	CPUMessage     = "cpu_per_message"
	CPULeft        = "cpu_left"
	Offered        = "offered"
)

// VersusWire is appended to the name of a metric whose ratio is taken to the node's cross-node sample
// instead of the node's sample on the same path: same-node pods against node-to-node, as published studies
// compare them.
const VersusWire = "_vs_wire"

// Metrics lists all metrics with their units.
var Metrics = []Metric{
	{Throughput, "Gbit/s", "higher", "payload that arrived, in 10^9 bits per second"},
	{Rate, "/s", "higher", "transactions (or messages) completed per second, all processes together"},
	{RTT, "µs", "lower", "mean full round trip"},
	{RTTP50, "µs", "lower", "median full round trip"},
	{RTTP90, "µs", "lower", "full round trip that 90 % of the transactions do not exceed"},
	{RTTP99, "µs", "lower", "full round trip that 99 % of the transactions do not exceed"},
	{RTTP999, "µs", "lower", "full round trip that 99.9 % of the transactions do not exceed"},
	{Loss, "%", "lower", "share of the messages sent that did not arrive"},
	{Retransmits, "segments", "lower", "TCP segments that the sender sent again"},
	{Transactions, "transactions", "", "transactions of the sample"},
	{Bytes, "bytes", "", "payload of the sample"},
	{Messages, "messages", "", "messages of the sample"},
	{Skew, "s", "", "by how much the measured intervals of parallel processes differ"},
	{SendBuffer, "bytes", "", "size of the sender's socket buffer at the end, as the kernel counts"},
	{ReceiveBuffer, "bytes", "", "size of the receiver's socket buffer at the end, as the kernel counts"},
	{CPUTransaction, "µs", "lower", "CPU time (user, system, softirq) of both ends for one transaction"},
	{CPUGB, "ms", "lower", "CPU time (user, system, softirq) of both ends for 10^9 bytes"},
	{CPUMessage, "µs", "lower", "CPU time (user, system, softirq) of both ends for one message that arrived"},
	{CPULeft, "%", "higher", "share of one core that forwarding a fixed rate of packets leaves"},
	{Offered, "/s", "", "packets offered per second"},
}

// MetricNamed gives the metric of that name.
func MetricNamed(name string) (Metric, bool) {
	for _, m := range Metrics {
		if m.Name == name {
			return m, true
		}
	}
	return Metric{}, false
}
