package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/value"
)

// Policy says who puts NetworkPolicies into force.
type Policy string

// The ways of policies.
const (
	// PolicyAuto is PolicyEBPF.
	PolicyAuto Policy = "auto"
	// PolicyEBPF says that the datapath does.
	PolicyEBPF Policy = "ebpf"
	// PolicyNone says that nobody does, or somebody else.
	PolicyNone Policy = "none"
)

// PolicyConfig is what one can tell the agent about NetworkPolicies.
type PolicyConfig struct {
	// Policy says who puts them into force.
	Policy Policy
	// PolicySizes are those of the tables.
	PolicySizes PolicySizes
}

// PolicySizes are how many entries the tables of NetworkPolicies have room for. Room costs memory too: 16 bytes for each entry, of Sessions
// all of it (see datapath.Sizes).
type PolicySizes struct {
	// Identities counts addresses: those of pods with single ones of ipBlocks, and as many prefixes.
	Identities int
	// Policies counts for each set of rules those whom it names.
	Policies int
	// Sessions counts connections of pods that policies select, and of those that flows tell of.
	Sessions int
}

// PolicyDefaults are in force where nothing else is said.
func PolicyDefaults() PolicyConfig {
	return PolicyConfig{Policy: PolicyAuto, PolicySizes: PolicySizes{Identities: 262144, Policies: 262144, Sessions: 262144}}
}

func (c PolicyConfig) validate() error {
	var errs []error
	if all := []Policy{PolicyAuto, PolicyEBPF, PolicyNone}; !slices.Contains(all, c.Policy) {
		errs = append(errs, fmt.Errorf("--policy: %q is none of %s", c.Policy, value.Quoted(all)))
	}
	for flag, size := range map[string]int{
		"--identities-max": c.PolicySizes.Identities, "--policies-max": c.PolicySizes.Policies, "--conntrack-max": c.PolicySizes.Sessions,
	} {
		if size < 1 || size > value.MaxTableSize {
			errs = append(errs, fmt.Errorf("%s: %d is not between 1 and %d", flag, size, value.MaxTableSize))
		}
	}
	return errors.Join(errs...)
}
