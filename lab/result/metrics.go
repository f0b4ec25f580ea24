package result

// Metric describes a value of Sample.Values or of Summary.
type Metric struct {
	Name string
	Unit string
	// Better is "higher", "lower", or empty if neither is better.
	Better string
	// BenchUnit is the unit in the Go benchmark format, one word that names what is counted. Metrics without it do not appear
	// there.
	BenchUnit string
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
	CPUSender      = "cpu_sender"
	CPUReceiver    = "cpu_receiver"
)

// VersusWire is the suffix of a same-node metric whose ratio is to the node's cross-node sample, as published studies
// compare pods on one node.
const VersusWire = "_vs_wire"

// Metrics lists all metrics with their units; docs/results.md says what they mean.
var Metrics = []Metric{
	{Throughput, "Gbit/s", "higher", "Gbit/s"},
	{Rate, "/s", "higher", "trans/s"},
	{RTT, "µs", "lower", "rtt-µs"},
	{RTTP50, "µs", "lower", "p50-rtt-µs"},
	{RTTP90, "µs", "lower", "p90-rtt-µs"},
	{RTTP99, "µs", "lower", "p99-rtt-µs"},
	{RTTP999, "µs", "lower", "p99.9-rtt-µs"},
	{Loss, "%", "lower", "loss-%"},
	{Retransmits, "segments", "lower", "retransmits"},
	{Transactions, "transactions", "", ""},
	{Bytes, "bytes", "", ""},
	{Messages, "messages", "", ""},
	{Skew, "s", "", ""},
	{SendBuffer, "bytes", "", ""},
	{ReceiveBuffer, "bytes", "", ""},
	{CPUTransaction, "µs", "lower", ""},
	{CPUGB, "ms", "lower", ""},
	{CPUMessage, "µs", "lower", ""},
	{CPULeft, "%", "higher", ""},
	{Offered, "/s", "", ""},
	{CPUSender, "%", "lower", ""},
	{CPUReceiver, "%", "lower", ""},
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
