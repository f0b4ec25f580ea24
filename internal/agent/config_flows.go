package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/datapath"
)

// FlowsTold says what flows tell of.
type FlowsTold string

// What flows may tell of.
const (
	// FlowsPolicy is the connections of pods that NetworkPolicies select, and every drop.
	FlowsPolicy FlowsTold = "policy"
	// FlowsAll is the connections of all pods, and every drop.
	FlowsAll FlowsTold = "all"
	// FlowsDrops is every drop.
	FlowsDrops FlowsTold = "drops"
	// FlowsOff is nothing.
	FlowsOff FlowsTold = "off"
)

var flowModes = map[FlowsTold]datapath.FlowMode{
	FlowsPolicy: datapath.FlowsPolicy, FlowsAll: datapath.FlowsAll, FlowsDrops: datapath.FlowsDrops, FlowsOff: datapath.FlowsOff,
}

// FlowConfig is what one can tell the agent about flows.
type FlowConfig struct {
	// Flows says what they tell of.
	Flows FlowsTold
	// FlowsRate is how many drops a second each CPU may tell of.
	FlowsRate int
	// FlowsSample lets them tell of one connection in so many.
	FlowsSample int
	// FlowsKept is how many events the agent keeps for those who ask later.
	FlowsKept int
}

// FlowDefaults are in force where nothing else is said.
func FlowDefaults() FlowConfig {
	return FlowConfig{Flows: FlowsPolicy, FlowsRate: 1000, FlowsSample: 1, FlowsKept: 16384}
}

// Bounds of what one can ask of flows. An event that is kept takes about 400 bytes, with what the list has in reserve.
const (
	maxFlowsRate   = 1000000
	maxFlowsSample = 1000000
	maxFlowsKept   = 1 << 20
)

func (c FlowConfig) validate() error {
	var errs []error
	if all := []FlowsTold{FlowsPolicy, FlowsAll, FlowsDrops, FlowsOff}; !slices.Contains(all, c.Flows) {
		errs = append(errs, fmt.Errorf("--flows: %q is none of %s", c.Flows, quoted(all)))
	}
	for _, f := range []struct {
		name       string
		value, max int
	}{{"--flows-rate", c.FlowsRate, maxFlowsRate}, {"--flows-sample", c.FlowsSample, maxFlowsSample}, {"--flows-kept", c.FlowsKept, maxFlowsKept}} {
		if f.value < 1 || f.value > f.max {
			errs = append(errs, fmt.Errorf("%s: %d is not between 1 and %d", f.name, f.value, f.max))
		}
	}
	return errors.Join(errs...)
}
