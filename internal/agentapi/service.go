package agentapi

import "context"

// Service is what the agent does for the plugin and the command line. Methods are safe for concurrent use. Errors
// that callers branch on are of type *Error; any other is sent to the client as CodeInternal.
type Service interface {
	// Prepare chooses the device of a pod; CodeNoDevice if this node cannot make the requested kind.
	Prepare(ctx context.Context, req PrepareRequest) (*Preparation, error)
	// Add makes an endpoint for an existing pod device and returns it, with its addresses and the MTU of the pod.
	// CodeConflict if the attachment has one already.
	Add(ctx context.Context, req AddRequest) (*Endpoint, error)
	// Delete removes an endpoint and its host device. A missing one is no error, and a later device of the same name
	// stays.
	Delete(ctx context.Context, req DeleteRequest) error
	// Check compares an endpoint with the kernel and returns it, with what is wrong in its State; CodeNotFound if
	// there is none.
	Check(ctx context.Context, a Attachment) (*Endpoint, error)
	// GC removes every endpoint of the network whose attachment is not listed.
	GC(ctx context.Context, req GCRequest) error
	// Status gives the content of `beeline status`, also while the agent is not ready.
	Status(ctx context.Context) (*Status, error)
	// Endpoints lists all endpoints of this node.
	Endpoints(ctx context.Context) ([]Endpoint, error)
	// Services lists the ports of Services on this node, sorted by the names of the Services.
	Services(ctx context.Context, which ServiceFilter) ([]ServicePort, error)
	// IPPools lists the IPPools of the cluster with their use, sorted by name.
	IPPools(ctx context.Context) ([]IPPool, error)
	// Policies lists the NetworkPolicies of the cluster with their state on this node, sorted by name.
	Policies(ctx context.Context, which PolicyFilter) ([]NetworkPolicy, error)
	// ExplainPolicy says whether policies allow a connection; CodeInvalid if the question is invalid, CodeNotFound if
	// an end does not exist.
	ExplainPolicy(ctx context.Context, q PolicyQuestion) (*PolicyAnswer, error)
	// Drops lists the counters of dropped packets.
	Drops(ctx context.Context) ([]Drop, error)
	// Flows lists the buffered flows, oldest first; CodeInvalid if the filter is invalid.
	Flows(ctx context.Context, which FlowFilter) (*FlowList, error)
	// FollowFlows streams flows as they come, after the filter's Last of the past: none, if it is 0. It ends with the
	// error of each, when ctx ends, or when the agent stops; CodeInvalid as for Flows, and if this node reports no
	// flows.
	FollowFlows(ctx context.Context, which FlowFilter, each func(FlowLine) error) error
	// Ready is nil when Add can succeed, else CodeNotReady with the reason.
	Ready(ctx context.Context) error
}

// Paths of the API. Requests with a body are POST, the others GET.
const (
	PathPrepare   = "/v1/prepare"
	PathAdd       = "/v1/add"
	PathDelete    = "/v1/delete"
	PathCheck     = "/v1/check"
	PathGC        = "/v1/gc"
	PathStatus    = "/v1/status"
	PathEndpoints = "/v1/endpoints"
	PathServices  = "/v1/services"
	PathIPPools   = "/v1/ippools"
	PathPolicies  = "/v1/policies"
	PathExplain   = "/v1/policies/explain"
	PathDrops     = "/v1/drops"
	PathFlows     = "/v1/flows"
	PathFollow    = "/v1/flows/follow"
	PathReady     = "/v1/ready"
)
