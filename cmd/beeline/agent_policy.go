package main

import (
	"github.com/spf13/pflag"

	"github.com/beeline-cni/beeline/internal/agent"
)

// addPolicyFlags adds the agent's flags about NetworkPolicies.
func addPolicyFlags(f *pflag.FlagSet, c *agent.PolicyConfig) {
	f.StringVar((*string)(&c.Policy), "policy", string(c.Policy), "who puts NetworkPolicies into force: ebpf, none; auto: ebpf")
	f.IntVar(&c.PolicySizes.Identities, "identities-max", c.PolicySizes.Identities, "how many addresses policies can tell apart: pods with single addresses of ipBlocks, and as many prefixes")
	f.IntVar(&c.PolicySizes.Policies, "policies-max", c.PolicySizes.Policies, "how many entries policies can have on this node: each set of rules has one for each kind of peer")
	f.IntVar(&c.PolicySizes.Sessions, "sessions-max", c.PolicySizes.Sessions, "how many connections are remembered, of pods that policies select, with --flows=all of all pods; those beyond are judged again by their next packet")
}
