package network

import (
	"context"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// PluginCall is one execution of a CNI plugin.
type PluginCall struct {
	// Command is the plugin's CNI_COMMAND: ADD, DEL, …
	Command string
	// Took is the time from the start of the plugin's process to its end, the plugins that it calls included.
	Took time.Duration
}

type observerKey struct{}

// ObservePlugins gives a context under which AddPod and DelPod report each plugin call.
func ObservePlugins(ctx context.Context, report func(PluginCall)) context.Context {
	return context.WithValue(ctx, observerKey{}, report)
}

// observed reports a call to the observer in the context, if there is one.
func observed(ctx context.Context, environ []string, took time.Duration) {
	report, ok := ctx.Value(observerKey{}).(func(PluginCall))
	if !ok {
		return
	}
	call := PluginCall{Took: took}
	for _, v := range environ {
		if command, ok := strings.CutPrefix(v, "CNI_COMMAND="); ok {
			call.Command = command
		}
	}
	report(call)
}

// AgentSocket is where the network's agent on a node answers, empty for networks without such an agent.
func AgentSocket(c Network, node *testbed.Node) string {
	if agents, ok := c.(interface {
		agentSocket(node *testbed.Node) string
	}); ok {
		return agents.agentSocket(node)
	}
	return ""
}

// AgentLog is where the agent of a node writes its log.
func AgentLog(node *testbed.Node) string { return agentLog(node) }
