package agentapi

import (
	"context"
	"encoding/json"
	"fmt"
)

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

// Add makes an endpoint for an existing pod device.
func (c *Client) Add(ctx context.Context, req AddRequest) (*AddResponse, error) {
	var resp AddResponse
	if err := c.post(ctx, PathAdd, req, &resp); err != nil {
		return nil, err
	}
	return &resp, nil
}

// Delete removes an endpoint and its host device; a missing endpoint is no error.
func (c *Client) Delete(ctx context.Context, req DeleteRequest) error {
	return c.post(ctx, PathDelete, req, nil)
}

// Check compares an endpoint with the kernel and returns it.
func (c *Client) Check(ctx context.Context, a Attachment) (*Endpoint, error) {
	var endpoint Endpoint
	if err := c.post(ctx, PathCheck, a, &endpoint); err != nil {
		return nil, err
	}
	return &endpoint, nil
}

// GC removes every endpoint of the network whose attachment is not listed.
func (c *Client) GC(ctx context.Context, req GCRequest) error {
	return c.post(ctx, PathGC, req, nil)
}

// Status gives everything `beeline status` prints.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	var status Status
	if err := c.get(ctx, PathStatus, &status); err != nil {
		return nil, err
	}
	return &status, nil
}

// Endpoints lists all endpoints of the agent's node.
func (c *Client) Endpoints(ctx context.Context) ([]Endpoint, error) {
	var endpoints []Endpoint
	err := c.get(ctx, PathEndpoints, &endpoints)
	return endpoints, err
}

// Services lists the ports of Services on the agent's node.
func (c *Client) Services(ctx context.Context, which ServiceFilter) ([]ServicePort, error) {
	var ports []ServicePort
	err := c.post(ctx, PathServices, which, &ports)
	return ports, err
}

// Policies lists the NetworkPolicies of the cluster as the agent's node has them.
func (c *Client) Policies(ctx context.Context, which PolicyFilter) ([]NetworkPolicy, error) {
	var policies []NetworkPolicy
	err := c.post(ctx, PathPolicies, which, &policies)
	return policies, err
}

// ExplainPolicy says whether policies allow a connection.
func (c *Client) ExplainPolicy(ctx context.Context, q PolicyQuestion) (*PolicyAnswer, error) {
	var response PolicyAnswer
	if err := c.post(ctx, PathExplain, q, &response); err != nil {
		return nil, err
	}
	return &response, nil
}

// Drops lists the counters of dropped packets.
func (c *Client) Drops(ctx context.Context) ([]Drop, error) {
	var drops []Drop
	err := c.get(ctx, PathDrops, &drops)
	return drops, err
}

// Flows lists the buffered flows.
func (c *Client) Flows(ctx context.Context, which FlowFilter) (*FlowList, error) {
	var list FlowList
	if err := c.post(ctx, PathFlows, which, &list); err != nil {
		return nil, err
	}
	return &list, nil
}

// FollowFlows streams flows as they come, until each returns an error or ctx ends; ErrNoAgent when the agent has
// stopped.
func (c *Client) FollowFlows(ctx context.Context, which FlowFilter, each func(FlowLine) error) error {
	return stream(ctx, c, PathFollow, which, each)
}

// Ready is nil when Add can succeed.
func (c *Client) Ready(ctx context.Context) error {
	return c.get(ctx, PathReady, nil)
}

func (c *Client) post(ctx context.Context, path string, req, resp any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode request %s: %w", path, err)
	}
	return c.call(ctx, "POST", path, body, resp)
}

func (c *Client) get(ctx context.Context, path string, resp any) error {
	return c.call(ctx, "GET", path, nil, resp)
}

// call decodes the response into resp, which may be nil if the response has no content. It ignores fields that a
// newer agent adds.
func (c *Client) call(ctx context.Context, method, path string, body []byte, resp any) error {
	status, response, err := c.exchange(ctx, method, path, body)
	if err != nil {
		return fmt.Errorf("call agent at %s: %w", c.socket, err)
	}
	if status != 200 {
		return c.responseError(path, status, response)
	}
	if resp == nil {
		return nil
	}
	if err := json.Unmarshal(response, resp); err != nil {
		return fmt.Errorf("decode response to %s: %w", path, err)
	}
	return nil
}

// responseError gives the error in a response other than 200.
func (c *Client) responseError(path string, status int, response []byte) error {
	var failure Error
	if err := json.Unmarshal(response, &failure); err != nil || failure.Message == "" {
		return Errorf(CodeInternal, "agent at %s responded to %s with status %d", c.socket, path, status)
	}
	return &failure
}
