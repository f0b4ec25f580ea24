package contender

import (
	"context"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/topology"
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

// AgentSocket is where the contender's agent on a node answers, empty for contenders without such an agent.
func AgentSocket(c Contender, node *topology.Node) string {
	if agents, ok := c.(interface {
		agentSocket(node *topology.Node) string
	}); ok {
		return agents.agentSocket(node)
	}
	return ""
}

// AgentLog is where the agent of a node writes its log.
func AgentLog(node *topology.Node) string { return agentLog(node) }
