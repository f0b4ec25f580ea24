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

// outcome is the result of the last pass.
type outcome struct {
	// filled says that the tables have had all policies since this agent started.
	filled bool
	// failure is why the tables could not be written. compileProblems are those of the compiler, problems these
	// together with what did not fit and with open.
	failure                   error
	compileProblems, problems []policy.Problem
	// missing are pods, by address, that lack programs which their policies need. open are the policies that are not
	// enforced for them, because the kernel stack still forwards.
	missing map[netip.Addr]failclosed.Missing
	open    []policy.Problem
	// closed says why local pods are isolated.
	closed map[closedPod]string
	// postponed is when the same inputs may have another result; zero: never.
	postponed time.Time
	// tables are those written last, and snapshot with local are their inputs.
	tables   *policy.Tables
	snapshot *cluster.Snapshot
	local    policy.Local
	states   states
}

// due reports whether the same inputs may have another result now.
func (o outcome) due() bool { return !o.postponed.IsZero() && !time.Now().Before(o.postponed) }

// conclude publishes the outcome of a pass, and logs what is new.
func (p *Policies) conclude(now outcome) {
	before := p.current()
	now.closed = now.closedPods()
	var closed []policy.Problem
	closed, now.open = now.incompletePods()
	now.problems = slices.Concat(now.compileProblems, now.unfinished(), closed, now.open)
	if failure := now.failure; failure != nil && (before.failure == nil || before.failure.Error() != failure.Error()) {
		p.log.Error("writing NetworkPolicies failed", "error", failure)
	}
	problem.LogNew(p.log, policySentences(before.problems), policySentences(now.problems))
	now.filled = before.filled || now.failure == nil || ofSets(now.failure)
	if now.filled && !before.filled {
		p.log.Info("NetworkPolicies are enforced", "policies", len(now.snapshot.NetworkPolicies), "pods", len(now.tables.Pods))
	}
	if !now.keepsStates(before) {
		p.states = p.states.after(now, time.Now())
	}
	now.states = p.states
	p.outcomeMu.Lock()
	p.outcome = now
	p.outcomeMu.Unlock()
	p.options.Changed()
	if now.filled && !before.filled || len(before.missing) > 0 && len(now.missing) == 0 {
		p.options.Reconcile()
	}
}

// policySentences are the texts of problems.
func policySentences(problems []policy.Problem) (all []string) {
	for _, p := range problems {
		all = append(all, p.Text)
	}
	return all
}

// all are the problems of policies, one sentence each, without those of invalid policies: the source names them.
func (o outcome) all() (all []string) {
	if o.failure != nil && !ofSets(o.failure) { // what does not fit is among the problems
		all = append(all, strings.Split(o.failure.Error(), "\n")...)
	}
	for _, problem := range o.problems {
		if policyOf(o.snapshot, problem.Policy).Invalid == "" {
			all = append(all, problem.Text)
		}
	}
	return all
}

// besideKubeProxy names the policies that are not fully enforced where kube-proxy translates Services: it does so
// after a packet has left its pod and was evaluated.
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
	return []string{"egress rules of NetworkPolicies see the addresses of Services and not of their pods, and are not enforced for NodePorts of this node (--services=kube-proxy): " + named(governed)}
}

// allowsAll reports whether a rule allows everything.
func allowsAll(r cluster.PolicyRule) bool { return len(r.Peers) == 0 && len(r.Ports) == 0 }

// named names the first policies in a sentence.
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
