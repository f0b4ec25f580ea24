package agentapi

import "context"

// Client is a client of this node's agent. It is safe for concurrent use; every call makes its own connection and
// lasts no longer than its context. It implements Service.
//
// Errors: ErrNoAgent when the agent does not respond, *Error when it returns an error, the context's error when its
// time is up.
type Client struct {
	socket string
}

var _ Service = (*Client)(nil)

// NewClient makes a client of the agent that listens on the unix socket of this path. It does not connect.
func NewClient(socket string) *Client { return &Client{socket: socket} }

// none is the response without content.
type none struct{}

// Prepare implements Service.
func (c *Client) Prepare(ctx context.Context, req PrepareRequest) (*Preparation, error) {
	return call[*Preparation](ctx, c, PathPrepare, req)
}

// Add implements Service.
func (c *Client) Add(ctx context.Context, req AddRequest) (*Endpoint, error) {
	return call[*Endpoint](ctx, c, PathAdd, req)
}

// Delete implements Service.
func (c *Client) Delete(ctx context.Context, req DeleteRequest) error {
	_, err := call[none](ctx, c, PathDelete, req)
	return err
}

// Check implements Service.
func (c *Client) Check(ctx context.Context, a Attachment) (*Endpoint, error) {
	return call[*Endpoint](ctx, c, PathCheck, a)
}

// GC implements Service.
func (c *Client) GC(ctx context.Context, req GCRequest) error {
	_, err := call[none](ctx, c, PathGC, req)
	return err
}

// Status implements Service.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return call[*Status](ctx, c, PathStatus, nil)
}

// Endpoints implements Service.
func (c *Client) Endpoints(ctx context.Context) ([]Endpoint, error) {
	return call[[]Endpoint](ctx, c, PathEndpoints, nil)
}

// Services implements Service.
func (c *Client) Services(ctx context.Context, which ServiceFilter) ([]ServicePort, error) {
	return call[[]ServicePort](ctx, c, PathServices, which)
}

// IPPools implements Service.
func (c *Client) IPPools(ctx context.Context) ([]IPPool, error) {
	return call[[]IPPool](ctx, c, PathIPPools, nil)
}

// Policies implements Service.
func (c *Client) Policies(ctx context.Context, which PolicyFilter) ([]NetworkPolicy, error) {
	return call[[]NetworkPolicy](ctx, c, PathPolicies, which)
}

// ExplainPolicy implements Service.
func (c *Client) ExplainPolicy(ctx context.Context, q PolicyQuestion) (*PolicyAnswer, error) {
	return call[*PolicyAnswer](ctx, c, PathExplain, q)
}

// Drops implements Service.
func (c *Client) Drops(ctx context.Context) ([]Drop, error) {
	return call[[]Drop](ctx, c, PathDrops, nil)
}

// Flows implements Service.
func (c *Client) Flows(ctx context.Context, which FlowFilter) (*FlowList, error) {
	return call[*FlowList](ctx, c, PathFlows, which)
}

// FollowFlows implements Service. The error is ErrNoAgent when the agent has stopped.
func (c *Client) FollowFlows(ctx context.Context, which FlowFilter, each func(FlowLine) error) error {
	return c.exchange(ctx, PathFollow, which, func(next decoder) error {
		for {
			var line FlowLine
			if err := next(&line); err != nil {
				return err
			}
			if err := each(line); err != nil {
				return err
			}
		}
	})
}

// Ready implements Service.
func (c *Client) Ready(ctx context.Context) error {
	_, err := call[none](ctx, c, PathReady, nil)
	return err
}

// call sends a request, POST or without one GET, and decodes the response.
func call[Resp any](ctx context.Context, c *Client, path string, req any) (resp Resp, err error) {
	err = c.exchange(ctx, path, req, func(next decoder) error { return next(&resp) })
	return resp, err
}
