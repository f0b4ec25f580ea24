package flow

import (
	"errors"
	"fmt"
	"slices"

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
	var errs []error
	if all := []Mode{ModePolicy, ModeAll, ModeDrops, ModeOff}; !slices.Contains(all, c.Flows) {
		errs = append(errs, fmt.Errorf("--flows: %q is none of %s", c.Flows, value.Quoted(all)))
	}
	for _, f := range []struct {
		name       string
		value, max int
	}{{"--flows-rate", c.FlowsRate, maxRate}, {"--flows-sample", c.FlowsSample, maxSample}, {"--flows-buffer", c.FlowsBuffer, MaxBuffer}} {
		if f.value < 1 || f.value > f.max {
			errs = append(errs, fmt.Errorf("%s: %d is not between 1 and %d", f.name, f.value, f.max))
		}
	}
	return errors.Join(errs...)
}
