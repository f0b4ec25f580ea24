package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// outcome is what the last pass has come to.
type outcome struct {
	// filled says that the tables have had all policies since this agent has started.
	filled bool
	// failure is what could not be written, compileProblems are those that the compiler has found, and problems these with what did not fit
	// and with open.
	failure                   error
	compileProblems, problems []policy.Problem
	// missing are pods by their addresses that lack programs which their policies need. open are the policies that are not enforced for
	// them, since the kernel stack still forwards.
	missing map[netip.Addr]failclosed.Missing
	open    []policy.Problem
	// closed says why pods here are closed.
	closed map[closedPod]string
	// postponed is when the same inputs may come to something else; zero: never.
	postponed time.Time
	// tables are those that were written last, and snapshot with local what they were made of.
	tables   *policy.Tables
	snapshot *cluster.Snapshot
	local    policy.Local
	states   states
}

// due tells whether the same inputs may come to something else now.
func (o outcome) due() bool { return !o.postponed.IsZero() && !time.Now().Before(o.postponed) }

// conclude tells what has come of a pass to those who ask, and what is new of it to the log.
func (p *Policies) conclude(now outcome) {
	before := p.current()
	now.closed = now.closedPods()
	var closed []policy.Problem
	closed, now.open = now.incompletePods()
	now.problems = slices.Concat(now.compileProblems, now.unfinished(), closed, now.open)
	if failure := now.failure; failure != nil && (before.failure == nil || before.failure.Error() != failure.Error()) {
		p.log.Error("NetworkPolicies cannot be written", "error", failure)
	}
	problem.LogNew(p.log, policySentences(before.problems), policySentences(now.problems))
	now.filled = before.filled || now.failure == nil || ofSets(now.failure)
	if now.filled && !before.filled {
		p.log.Info("NetworkPolicies are in force", "policies", len(now.snapshot.NetworkPolicies), "pods", len(now.tables.Pods))
	}
	if !now.keepsStates(before) {
		p.states = p.states.after(now, time.Now())
	}
	now.states = p.states
	p.outcomeMu.Lock()
	p.outcome = now
	p.outcomeMu.Unlock()
	p.changed()
	if now.filled && !before.filled {
		p.filledFirst()
	}
	if len(before.missing) > 0 && len(now.missing) == 0 {
		p.completeAgain()
	}
}

// policySentences are the texts of problems.
func policySentences(problems []policy.Problem) (all []string) {
	for _, p := range problems {
		all = append(all, p.Text)
	}
	return all
}

// all are the problems of policies, one sentence each, but for those of policies that are not understood: the source names them.
func (o outcome) all() (all []string) {
	if o.failure != nil && !ofSets(o.failure) { // what does not fit is among the problems
		all = append(all, strings.Split(o.failure.Error(), "\n")...)
	}
	for _, problem := range o.problems {
		if policyOf(o.snapshot, problem.Policy).Wrong == "" {
			all = append(all, problem.Text)
		}
	}
	return all
}

// besideKubeProxy names the policies that do not hold for all that they are about where kube-proxy translates Services, which it does
// when a packet has left its pod and is judged.
func (o outcome) besideKubeProxy() []string {
	if o.tables == nil {
		return nil
	}
	selected := map[cluster.Key]bool{}
	for _, policies := range o.tables.Selected {
		for _, key := range policies {
			selected[key] = true
		}
	}
	var governed []*cluster.NetworkPolicy
	for _, p := range o.snapshot.NetworkPolicies {
		if p.IsolatesEgress && selected[p.Key()] && !slices.ContainsFunc(p.Egress, allowsAll) {
			governed = append(governed, p)
		}
	}
	if len(governed) == 0 {
		return nil
	}
	return []string{"egress rules of NetworkPolicies see the addresses of Services and not their pods, and do not hold for NodePorts of this node (--services=kube-proxy): " + named(governed)}
}

// allowsAll tells a rule that allows everything.
func allowsAll(r cluster.PolicyRule) bool { return len(r.Peers) == 0 && len(r.Ports) == 0 }

// named names policies in a sentence, the first ones.
func named(policies []*cluster.NetworkPolicy) string {
	const most = 3
	var names []string
	for _, p := range policies[:min(most, len(policies))] {
		names = append(names, p.Key().String())
	}
	if more := len(policies) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
