// Package cni is the CNI plugin as functions: ADD, DEL, CHECK, STATUS and GC, each in a file of its own.
// The plugin makes and deletes the pod's device and configures the pod's side; the agent does everything
// else and is asked over its socket. The plugin keeps no state: the name of the host device follows from the
// attachment, and an endpoint exists if and only if its host device does.
//
// It must start fast, since a runtime executes it several times for every pod. A test keeps net/http,
// cilium/ebpf and Kubernetes out of it.
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

// agentTimeout bounds each question to the agent. It answers within milliseconds; one that takes this
// long is stuck, and the runtime should hear so while it is still waiting.
const agentTimeout = 10 * time.Second

// Agent is what the plugin asks of the agent; agentapi.Client answers.
type Agent interface {
	Add(ctx context.Context, req agentapi.AddRequest) (*agentapi.AddResponse, error)
	Delete(ctx context.Context, req agentapi.DeleteRequest) error
	Check(ctx context.Context, a agentapi.Attachment) (*agentapi.Endpoint, error)
	GC(ctx context.Context, req agentapi.GCRequest) error
	Ready(ctx context.Context) error
}

// Devices is what the plugin does with devices; package device answers, in the functions of these names.
type Devices interface {
	CreatePair(spec device.PairSpec) (device.Pair, error)
	ConfigurePod(netns, ifName string, cfg device.PodConfig) error
	CheckPod(netns, ifName string, cfg device.PodConfig) error
	// HostIndex gives the index of the device of that name, 0 if there is none.
	HostIndex(name string) (int, error)
	DeleteHost(name string) error
}

// Plugin holds what the plugin touches of the outside.
type Plugin struct {
	// Agent gives the agent behind a socket.
	Agent func(socket string) Agent
	// Devices are those of the node.
	Devices Devices
	// Stdout takes the result of ADD, Stderr what the runtime may log.
	Stdout, Stderr io.Writer
	// Timeout bounds each question to the agent.
	Timeout time.Duration
}

// New makes the plugin that works on this node.
func New(stdout, stderr io.Writer) *Plugin {
	return &Plugin{
		Agent:   func(socket string) Agent { return agentapi.NewClient(socket) },
		Devices: kernel{},
		Stdout:  stdout,
		Stderr:  stderr,
		Timeout: agentTimeout,
	}
}

// Funcs gives the plugin's functions to skel.
func (p *Plugin) Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{Add: p.Add, Del: p.Del, Check: p.Check, GC: p.GC, Status: p.Status}
}

// Versions are the versions of the CNI specification that the plugin speaks.
func Versions() version.PluginInfo {
	return version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")
}

// ask calls the agent with a limited time.
func (p *Plugin) ask(question func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.Timeout)
	defer cancel()
	return question(ctx)
}

func attachment(args *skel.CmdArgs) agentapi.Attachment {
	return agentapi.Attachment{ContainerID: args.ContainerID, IfName: args.IfName}
}

// kernel is the Devices of this node.
type kernel struct{}

func (kernel) CreatePair(spec device.PairSpec) (device.Pair, error) { return device.CreatePair(spec) }
func (kernel) ConfigurePod(netns, ifName string, cfg device.PodConfig) error {
	return device.ConfigurePod(netns, ifName, cfg)
}
func (kernel) CheckPod(netns, ifName string, cfg device.PodConfig) error {
	return device.CheckPod(netns, ifName, cfg)
}
func (kernel) DeleteHost(name string) error { return device.DeleteHost(name) }
func (kernel) HostIndex(name string) (int, error) {
	host, _, err := device.FindHost(name)
	return host.Index, err
}
