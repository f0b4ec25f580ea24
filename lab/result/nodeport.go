package result

// ForwarderCore is the placement of the nodeport suite: the forwarding node has one CPU to itself, and the packet
// generator and the packet counter share another.
const ForwarderCore Placement = "forwarder-core"

// NodePort describes how the packets of a nodeport run were made and counted.
type NodePort struct {
	// FrameBytes is the length of a frame without its check sequence, Flows the number of flows.
	FrameBytes int `json:"frameBytes"`
	Flows      int `json:"flows"`
	// Services is the number of Services in the cluster, including the measured ones.
	Services int `json:"services"`
	// OfferedMax is the packet rate (per second) of the generator through a bare veth pair with a CPU for each end,
	// OneCoreMax the rate with both ends on one CPU.
	OfferedMax float64 `json:"offeredMax"`
	OneCoreMax float64 `json:"oneCoreMax"`
	// CountingMax is the packet rate (per second) of the generator while the counter on its CPU receives what is
	// forwarded, for the network that leaves it least. It is 0 if no workload needs a fixed rate.
	CountingMax float64 `json:"countingMax,omitempty"`
	// Scale converts a packet rate of the published study to one on this machine: OfferedMax divided by the 10 million
	// per second offered there, or less if the generator cannot reach the highest fixed rate beside the counter.
	Scale float64 `json:"scale"`
	// Routes maps a placement to the route of its packets and the point where they were counted.
	Routes map[string]string `json:"routes"`
}
