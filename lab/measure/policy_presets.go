package measure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/workload"
)

// PolicyWorkloads are those of the policy bench.
var PolicyWorkloads = []string{"tcp_stream_128k", "tcp_rr", "tcp_crr"}

const (
	// QuickPolicyLimit is what a quick run of the policy bench may take in all.
	QuickPolicyLimit = 11 * time.Minute
	// quickPolicyRounds are more than other quick runs have, since what is looked for is a hundredth.
	quickPolicyRounds = 15
)

// QuickPolicy is the plan of about ten minutes.
func QuickPolicy(c Choice) (PolicyPlan, error) {
	p := PolicyPlan{Schedule: QuickSchedule(c), Truth: true, Changes: 100, ChangesFor: 40 * time.Second, Scratches: 3}
	if c.Rounds == 0 {
		p.Rounds, p.ExtraRounds = quickPolicyRounds, quickPolicyRounds
	}
	p, err := p.complete(c)
	if p.Mode == "quick" && err == nil {
		// A round begins only where it and what comes after it fit.
		p.Until = QuickPolicyLimit - reserve - p.round(len(p.subjects()), p.Length) - p.after()
	}
	return p, err
}

// FullPolicy is the plan with more rounds, for finer differences.
func FullPolicy(c Choice) (PolicyPlan, error) {
	p := PolicyPlan{Schedule: FullSchedule(c), Truth: true, Changes: 200, ChangesFor: 2 * time.Minute, Scratches: 10}
	if c.Rounds == 0 {
		p.Rounds, p.ExtraRounds = 30, 30
	}
	return p.complete(c)
}

// complete adds networks and cells.
func (p PolicyPlan) complete(c Choice) (PolicyPlan, error) {
	p.MTU = defaultMTU
	if len(c.Paths) > 0 && !slices.Equal(c.Paths, []result.Path{result.CrossNode}) || len(c.Procs) > 0 && !slices.Equal(c.Procs, []int{1}) {
		return p, errors.New("the policy bench has the path cross-node and one process only")
	}
	if len(c.Placements) > 1 {
		return p, errors.New("the policy bench has one placement")
	}
	var known []string
	for _, one := range network.PolicyNetworks() {
		known = append(known, one.Name())
		if len(c.Networks) == 0 || slices.Contains(c.Networks, one.Name()) {
			p.Networks = append(p.Networks, one)
		}
	}
	for _, name := range c.Networks {
		if !slices.Contains(known, name) {
			return p, fmt.Errorf("no network %q in the policy bench; there are: %s", name, strings.Join(known, ", "))
		}
	}
	p.Networks = network.WithBuilds(p.Networks, c.Builds)
	placement := orDefault(c.Placements, result.OneCore)[0]
	if placement != result.OneCore && placement != result.Spread {
		return p, fmt.Errorf("no placement %q; there are: %s, %s", placement, result.OneCore, result.Spread)
	}
	if _, _, err := cpus(placement, allowed()); err != nil {
		return p, err
	}
	for _, name := range orDefault(c.Workloads, PolicyWorkloads...) {
		if !slices.Contains(PolicyWorkloads, name) {
			return p, fmt.Errorf("workload %s is not one of the policy bench; those are: %s", name, strings.Join(PolicyWorkloads, ", "))
		}
	}
	list, err := workload.Select(orDefault(c.Workloads, PolicyWorkloads...))
	if err != nil {
		return p, err
	}
	for _, w := range list {
		if missing := w.Missing(); missing != "" {
			return p, fmt.Errorf("workload %s: %s", w.Info().Name, missing)
		}
		p.Cells = append(p.Cells, Cell{w, result.CrossNode, placement, 1})
	}
	return p, nil
}
