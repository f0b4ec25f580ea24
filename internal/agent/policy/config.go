package policy

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/agent/value"
)

// Mode says what enforces NetworkPolicies.
type Mode string

// The modes.
const (
	// ModeAuto is ModeEBPF.
	ModeAuto Mode = "auto"
	// ModeEBPF is the datapath.
	ModeEBPF Mode = "ebpf"
	// ModeNone is nothing, or something else than Beeline.
	ModeNone Mode = "none"
)

// Config is the configuration of NetworkPolicies.
type Config struct {
	// Policy says what enforces them.
	Policy Mode
	// PolicySizes are those of the tables.
	PolicySizes Sizes
}

// Sizes are the capacities of the tables. Each entry of capacity costs 16 bytes; those of Conntrack are preallocated (see datapath.Sizes).
type Sizes struct {
	// Identities counts addresses of pods, and separately as many ipBlocks and exceptions.
	Identities int
	// Policies counts the peers of each set of rules.
	Policies int
	// Conntrack counts connections of pods that policies select, and connections that flows report.
	Conntrack int
}

// Defaults is the configuration without flags.
func Defaults() Config {
	return Config{Policy: ModeAuto, PolicySizes: Sizes{Identities: 262144, Policies: 262144, Conntrack: 262144}}
}

// Validate reports every impossible value, each with the name of its flag.
func (c Config) Validate() error {
	return errors.Join(
		value.OneOf("--policy", c.Policy, ModeAuto, ModeEBPF, ModeNone),
		value.Between("--identities-max", c.PolicySizes.Identities, 1, value.MaxTableSize),
		value.Between("--policies-max", c.PolicySizes.Policies, 1, value.MaxTableSize),
		value.Between("--conntrack-max", c.PolicySizes.Conntrack, 1, value.MaxTableSize))
}
