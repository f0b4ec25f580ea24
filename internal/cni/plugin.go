// Package cni implements the commands of the CNI plugin: ADD, DEL, CHECK, STATUS and GC, each in a file of its own. The
// plugin creates and deletes the pod's device and configures the pod's end; it requests everything else from the agent
// over its socket. The plugin has no state: the name of the host device follows from the attachment, and an endpoint
// exists if and only if its host device does.
//
// It must start fast, because a runtime executes it several times for every pod. A test keeps net/http, cilium/ebpf and
// Kubernetes out of it.
package cni

import (
	"context"
	"io"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Type is the plugin's name in a network configuration.
const Type = "beeline-cni"

// agentTimeout bounds each request to the agent. The agent replies within milliseconds; the timeout is shorter than the
// runtime's, so that the runtime still receives the error.
const agentTimeout = 10 * time.Second

// Agent is the agent of this node; agentapi.Client implements it.
type Agent interface {
	Prepare(ctx context.Context, req agentapi.PrepareRequest) (*agentapi.Preparation, error)
	Add(ctx context.Context, req agentapi.AddRequest) (*agentapi.Endpoint, error)
	Delete(ctx context.Context, req agentapi.DeleteRequest) error
	Check(ctx context.Context, a agentapi.Attachment) (*agentapi.Endpoint, error)
	GC(ctx context.Context, req agentapi.GCRequest) error
	Ready(ctx context.Context) error
}

// Plugin holds the dependencies of the plugin.
type Plugin struct {
	// Agent returns the agent at a socket.
	Agent func(socket string) Agent
	// Devices are the pod devices of the node.
	Devices device.PodDevices
	// Stdout receives the result of ADD, Stderr messages for the runtime's log.
	Stdout, Stderr io.Writer
	// Timeout bounds each request to the agent; GC may take gcFactor times as long.
	Timeout time.Duration
}

// New returns the plugin of this node.
func New(stdout, stderr io.Writer) *Plugin {
	return &Plugin{
		Agent:   func(socket string) Agent { return agentapi.NewClient(socket) },
		Devices: device.Pods,
		Stdout:  stdout,
		Stderr:  stderr,
		Timeout: agentTimeout,
	}
}

// Funcs returns the plugin's commands for skel.
func (p *Plugin) Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{Add: p.Add, Del: p.Del, Check: p.Check, GC: p.GC, Status: p.Status}
}

// Versions returns the supported versions of the CNI specification.
func Versions() version.PluginInfo {
	return version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")
}

// request calls the agent with a timeout.
func (p *Plugin) request(call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.Timeout)
	defer cancel()
	return call(ctx)
}

func attachment(args *skel.CmdArgs) agentapi.Attachment {
	return agentapi.Attachment{ContainerID: args.ContainerID, IfName: args.IfName}
}
