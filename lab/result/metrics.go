package result

// Metric describes a value of Sample.Values or of Summary.
type Metric struct {
	Name string
	Unit string
	// Better is "higher", "lower", or empty if neither is better.
	Better string
	// Meaning is one sentence.
	Meaning string
}

// The names of the metrics.
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

// VersusWire is the suffix of a same-node metric whose ratio is to the node's cross-node sample, as published studies
// compare pods on one node.
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
	{Loss, "%", "lower", "share of the messages that did not arrive"},
	{Retransmits, "segments", "lower", "TCP segments that the sender retransmitted"},
	{Transactions, "transactions", "", "transactions of the sample"},
	{Bytes, "bytes", "", "payload of the sample"},
	{Messages, "messages", "", "messages of the sample"},
	{Skew, "s", "", "largest difference between the measured intervals of parallel processes"},
	{SendBuffer, "bytes", "", "size of the sender's socket buffer at the end, as the kernel counts"},
	{ReceiveBuffer, "bytes", "", "size of the receiver's socket buffer at the end, as the kernel counts"},
	{CPUTransaction, "µs", "lower", "CPU time (user, system, softirq) of both ends for one transaction"},
	{CPUGB, "ms", "lower", "CPU time (user, system, softirq) of both ends for 10^9 bytes"},
	{CPUMessage, "µs", "lower", "CPU time (user, system, softirq) of both ends for one message that arrived"},
	{CPULeft, "%", "higher", "share of one core that is idle while a fixed rate of packets is forwarded"},
	{Offered, "/s", "", "packets offered per second"},
}

// MetricNamed returns the metric with that name.
func MetricNamed(name string) (Metric, bool) {
	for _, m := range Metrics {
		if m.Name == name {
			return m, true
		}
	}
	return Metric{}, false
}
