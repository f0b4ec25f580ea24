package agentapi

import "context"

// Service is what the agent does for the plugin and the command line. Methods are called from many
// goroutines at once. Errors that callers branch on are of type *Error; any other is told to the client
// as CodeInternal.
type Service interface {
	// Add makes an endpoint of a pod device that exists. CodeConflict if the attachment has one already.
	Add(ctx context.Context, req AddRequest) (*AddResponse, error)
	// Delete removes an endpoint and its host device; deleting what is not there succeeds, and so does leaving a later device of the name alone.
	Delete(ctx context.Context, req DeleteRequest) error
	// Check compares an endpoint with the kernel and gives it; CodeNotFound if there is none. What is
	// wrong with it is in its State.
	Check(ctx context.Context, a Attachment) (*Endpoint, error)
	// GC removes every endpoint of the network whose attachment is not listed.
	GC(ctx context.Context, req GCRequest) error
	// Status gives everything `beeline status` prints, also while the agent is not ready.
	Status(ctx context.Context) (*Status, error)
	// Endpoints lists all endpoints of this node.
	Endpoints(ctx context.Context) ([]Endpoint, error)
	// Services lists the ports of Services on this node, sorted by the names of the Services.
	Services(ctx context.Context, which ServiceFilter) ([]ServicePort, error)
	// Policies lists the NetworkPolicies of the cluster as this node has them, sorted by name.
	Policies(ctx context.Context, which PolicyFilter) ([]NetworkPolicy, error)
	// ExplainPolicy says whether policies allow a connection; CodeInvalid if the question makes no sense, CodeNotFound if an end of it
	// is not known.
	ExplainPolicy(ctx context.Context, q PolicyQuestion) (*PolicyAnswer, error)
	// Drops lists the counters of dropped packets.
	Drops(ctx context.Context) ([]Drop, error)
	// Flows lists what is kept of flows, the oldest first; CodeInvalid if the filter cannot be understood.
	Flows(ctx context.Context, which FlowFilter) (*FlowList, error)
	// FollowFlows tells of flows as they come, after those of the past that the filter's Last asks for: none, if it is 0. It ends with the
	// error of each, when ctx ends, or when the agent stops; CodeInvalid as Flows, and if there are none on this node.
	FollowFlows(ctx context.Context, which FlowFilter, each func(FlowLine) error) error
	// Ready is nil when Add can succeed, else CodeNotReady with the reason.
	Ready(ctx context.Context) error
}

// Paths of the API. Requests that carry something are POST, the others GET.
const (
	PathAdd       = "/v1/add"
	PathDelete    = "/v1/delete"
	PathCheck     = "/v1/check"
	PathGC        = "/v1/gc"
	PathStatus    = "/v1/status"
	PathEndpoints = "/v1/endpoints"
	PathServices  = "/v1/services"
	PathPolicies  = "/v1/policies"
	PathExplain   = "/v1/policies/explain"
	PathDrops     = "/v1/drops"
	PathFlows     = "/v1/flows"
	PathFollow    = "/v1/flows/follow"
	PathReady     = "/v1/ready"
)
