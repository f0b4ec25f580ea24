package main

import (
	"github.com/spf13/pflag"

	"github.com/beeline-cni/beeline/internal/agent"
)

// addFlowFlags adds the agent's flags about flows.
func addFlowFlags(f *pflag.FlagSet, c *agent.FlowConfig) {
	f.StringVar((*string)(&c.Flows), "flows", string(c.Flows), "what flows tell of: policy (connections of pods that NetworkPolicies select, and drops), all (connections of all pods, and drops), drops, off")
	f.IntVar(&c.FlowsRate, "flows-rate", c.FlowsRate, "how many drops a second each CPU tells of; those beyond are counted")
	f.IntVar(&c.FlowsSample, "flows-sample", c.FlowsSample, "tell of one connection in so many")
	f.IntVar(&c.FlowsBuffer, "flows-kept", c.FlowsBuffer, "how many events are kept for those who ask later")
}
