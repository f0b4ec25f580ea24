package result

// ForwarderCore is the placement of the NodePort bench in which the forwarding node's work is alone on one CPU, and what
// makes and counts the packets on another.
const ForwarderCore Placement = "forwarder-core"

// NodePort says how the packets of a NodePort run were made, and what its columns mean on this machine.
type NodePort struct {
	// FrameBytes is the length of a frame without check sequence, Flows how many flows the frames belong to.
	FrameBytes int `json:"frameBytes"`
	Flows      int `json:"flows"`
	// Services is how many Services there are, the measured ones among them.
	Services int `json:"services"`
	// OfferedMax is how many packets per second the generator brings through a bare veth pair, OneCoreMax the same when the
	// generator and the pair share one CPU.
	OfferedMax float64 `json:"offeredMax"`
	OneCoreMax float64 `json:"oneCoreMax"`
	// CountingMax is how many the generator makes while the counter beside it takes in what is forwarded, with the contender
	// that leaves it the least; 0 where no figure needs a fixed rate.
	CountingMax float64 `json:"countingMax,omitempty"`
	// Scale is what one packet per second of the published study is here: OfferedMax divided by the 10 million per second
	// that were offered there, or less where the generator could not make the highest fixed rate beside the counter.
	Scale float64 `json:"scale"`
	// Ways says for each placement how packets travelled and where they were counted.
	Ways map[string]string `json:"ways"`
}
