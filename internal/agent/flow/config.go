package flow

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/datapath/config"
)

// Mode says which events the datapath reports.
type Mode string

// The modes.
const (
	// ModePolicy is connections of pods that NetworkPolicies select, and all drops.
	ModePolicy Mode = "policy"
	// ModeAll is connections of all pods, and all drops.
	ModeAll Mode = "all"
	// ModeDrops is all drops.
	ModeDrops Mode = "drops"
	// ModeOff is nothing.
	ModeOff Mode = "off"
)

var modes = map[Mode]config.FlowMode{
	ModePolicy: config.FlowsPolicy, ModeAll: config.FlowsAll, ModeDrops: config.FlowsDrops, ModeOff: config.FlowsOff,
}

// Datapath gives the mode as the datapath has it.
func (m Mode) Datapath() config.FlowMode { return modes[m] }

// Config is the configuration of flows.
type Config struct {
	Flows Mode
	// FlowsRate is how many drops a second each CPU may report.
	FlowsRate int
	// FlowsSample reports one connection in N.
	FlowsSample int
	// FlowsBuffer is how many events the agent keeps for later queries.
	FlowsBuffer int
}

// Defaults is the configuration without flags.
func Defaults() Config {
	return Config{Flows: ModePolicy, FlowsRate: 1000, FlowsSample: 1, FlowsBuffer: 16384}
}

// Bounds. An event in the buffer takes about 400 bytes.
const (
	maxRate   = 1000000
	maxSample = 1000000
	MaxBuffer = 1 << 20
)

// Validate reports every impossible value, each with the name of its flag.
func (c Config) Validate() error {
	return errors.Join(
		value.OneOf("--flows", c.Flows, ModePolicy, ModeAll, ModeDrops, ModeOff),
		value.Between("--flows-rate", c.FlowsRate, 1, maxRate),
		value.Between("--flows-sample", c.FlowsSample, 1, maxSample),
		value.Between("--flows-buffer", c.FlowsBuffer, 1, MaxBuffer))
}
