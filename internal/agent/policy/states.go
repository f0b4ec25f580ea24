package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	dppolicy "github.com/beeline-cni/beeline/internal/datapath/policy"
	"github.com/beeline-cni/beeline/internal/policy"
)

// state is the state of a policy in the API, with its reason and its time.
type state struct {
	of            *cluster.NetworkPolicy
	state, reason string
	since         time.Time
}

// states are those of all policies of the cluster.
type states map[cluster.Key]state

// after gives the states after a pass.
func (before states) after(o outcome, now time.Time) states {
	problems := make(map[cluster.Key]string, len(o.problems))
	for _, p := range o.problems {
		problems[p.Policy] = p.Text
	}
	open := make(map[cluster.Key]bool, len(o.open))
	for _, p := range o.open {
		open[p.Policy] = true
	}
	states := make(states, len(o.snapshot.NetworkPolicies))
	for _, p := range o.snapshot.NetworkPolicies {
		s := state{of: p, state: agentapi.PolicyActive, since: now}
		switch problem := problems[p.Key()]; {
		case p.Invalid != "":
			s.state, s.reason = agentapi.PolicyClosed, p.Invalid
		case open[p.Key()]:
			s.state, s.reason = agentapi.PolicyPending, problem
		case problem != "":
			s.state, s.reason = agentapi.PolicyClosed, problem
		case o.failure != nil && !ofSets(o.failure):
			s.state, s.reason = agentapi.PolicyPending, o.failure.Error()
		}
		if old, ok := before[p.Key()]; ok && old.of == s.of && old.state == s.state && old.reason == s.reason {
			s.since = old.since
		}
		states[p.Key()] = s
	}
	return states
}

// isWhole reports whether everything is applied as intended.
func (o outcome) isWhole() bool {
	return o.snapshot != nil && len(o.problems)+len(o.open) == 0 && o.failure == nil
}

// keepsStates reports, without visiting thousands of policies, whether their states are those after the last pass.
func (o outcome) keepsStates(before outcome) bool {
	return o.isWhole() && before.isWhole() && cluster.Same(o.snapshot.NetworkPolicies, before.snapshot.NetworkPolicies)
}

// count gives how many of these policies are closed, and how many are pending: no pass has included those.
func (states states) count(of []*cluster.NetworkPolicy) (closed, pending int) {
	for _, p := range of {
		switch s, ok := states[p.Key()]; {
		case !ok || s.of != p || s.state == agentapi.PolicyPending:
			pending++
		case s.state == agentapi.PolicyClosed:
			closed++
		}
	}
	return closed, pending
}

// closedPod is one direction of a pod.
type closedPod struct {
	pod     cluster.Key
	ingress bool
}

// set gives the set of that direction.
func (c closedPod) set(of policy.Sets) policy.Set {
	if c.ingress {
		return of.Ingress
	}
	return of.Egress
}

// closedPods says why local pods are isolated.
func (o outcome) closedPods() map[closedPod]string {
	all := map[closedPod]string{}
	var full *dppolicy.SyncError
	_ = errors.As(o.failure, &full)
	for _, pod := range o.local.Pods {
		for _, ingress := range []bool{true, false} {
			at := closedPod{pod.Pod, ingress}
			for _, a := range pod.Addresses {
				set := at.set(o.tables.Pods[a])
				left := full != nil && slices.Contains(full.Pods, a) && slices.Contains(full.Sets, set)
				switch {
				case set != policy.DenyAll && !left || o.isAnother(pod):
				case set == policy.DenyAll:
					all[at] = o.whyClosed(pod)
				default:
					all[at] = full.Err.Error()
				}
			}
		}
	}
	return all
}

// isAnother reports whether a pod is an earlier or a later one of the same name.
func (o outcome) isAnother(pod policy.LocalPod) bool {
	return pod.Object(o.snapshot) == nil && slices.ContainsFunc(o.local.Pods, func(other policy.LocalPod) bool {
		return other.Pod == pod.Pod && other.Object(o.snapshot) != nil
	})
}

// whyClosed says why a pod is isolated in the tables.
func (o outcome) whyClosed(pod policy.LocalPod) string {
	for _, problem := range o.compileProblems {
		if slices.Contains(problem.Pods, pod.Pod) {
			return problem.Text
		}
	}
	if pod.Object(o.snapshot) == nil {
		return fmt.Sprintf("the cluster has not reported pod %s yet", pod.Pod)
	}
	return "its policies are not synced"
}

// unfinished are the policies that did not fit completely, each with the pods that are isolated for it.
func (o outcome) unfinished() (all []policy.Problem) {
	var full *dppolicy.SyncError
	if !errors.As(o.failure, &full) {
		return nil
	}
	concerned := map[cluster.Key][]cluster.Key{}
	for _, pod := range o.local.Pods {
		isOf := func(a netip.Addr) bool { return slices.Contains(full.Pods, a) }
		if !slices.ContainsFunc(pod.Addresses, isOf) {
			continue
		}
		for _, ingress := range []bool{true, false} {
			if _, closed := o.closed[closedPod{pod.Pod, ingress}]; !closed {
				continue
			}
			for _, key := range o.selecting(pod.Pod, ingress) {
				if !slices.Contains(concerned[key], pod.Pod) {
					concerned[key] = append(concerned[key], pod.Pod)
				}
			}
		}
	}
	return o.problemsOf(concerned, func(key cluster.Key, pods []cluster.Key) string {
		return fmt.Sprintf("NetworkPolicy %s does not fit, and %d local pods that it selects are isolated: %v", key, len(pods), problem.OneLine{Err: full.Err})
	})
}

// incompletePods are the policies whose pods lack the program of a direction, each with those pods: for closed ones
// the kernel stack forwards nothing, for open ones everything.
func (o outcome) incompletePods() (closed, open []policy.Problem) {
	for _, d := range []struct {
		ingress      bool
		closed, open string
	}{
		{true, "closed for what the host's stack forwards to it", "open for what the host's stack sends to it"},
		{false, "closed for what it sends to others than its node", "open for what it sends"},
	} {
		why, stillOpen := failclosed.Reason(o.missing, d.ingress)
		if stillOpen != nil {
			open = append(open, o.incompleteIn(d.ingress, d.open, errors.Join(why, stillOpen))...)
		} else if why != nil {
			closed = append(closed, o.incompleteIn(d.ingress, d.closed, why)...)
		}
	}
	return closed, open
}

// incompleteIn are those of one direction; state is the consequence for the pods.
func (o outcome) incompleteIn(ingress bool, state string, why error) (all []policy.Problem) {
	concerned := map[cluster.Key][]cluster.Key{}
	for _, pod := range o.local.Pods {
		if !o.isIncomplete(pod, ingress) {
			continue
		}
		policies := o.selecting(pod.Pod, ingress)
		for _, key := range policies {
			concerned[key] = append(concerned[key], pod.Pod)
		}
		if len(policies) == 0 { // its labels are not known, or its source addresses are not checked
			all = append(all, policy.Problem{Pods: []cluster.Key{pod.Pod}, Text: fmt.Sprintf("pod %s is %s: %v", pod.Pod, state, problem.OneLine{Err: why})})
		}
	}
	return append(all, o.problemsOf(concerned, func(key cluster.Key, pods []cluster.Key) string {
		return fmt.Sprintf("NetworkPolicy %s: %s is %s: %v", key, countPods(pods), state, problem.OneLine{Err: why})
	})...)
}

// isIncomplete reports whether a pod lacks the program of a direction that its policies need.
func (o outcome) isIncomplete(pod policy.LocalPod, ingress bool) bool {
	return slices.ContainsFunc(pod.Addresses, func(a netip.Addr) bool { return o.missing[a].Reason(ingress) != nil })
}

// problemsOf makes one problem of each policy, with its pods.
func (o outcome) problemsOf(concerned map[cluster.Key][]cluster.Key, text func(cluster.Key, []cluster.Key) string) (all []policy.Problem) {
	for _, key := range slices.SortedFunc(maps.Keys(concerned), cluster.Key.Compare) {
		pods := concerned[key]
		all = append(all, policy.Problem{Policy: key, UID: policyOf(o.snapshot, key).UID, Pods: pods, Text: text(key, pods)})
	}
	return all
}

// countPods names or counts pods in a sentence, in the singular.
func countPods(pods []cluster.Key) string {
	if len(pods) == 1 {
		return "pod " + pods[0].String()
	}
	return fmt.Sprintf("each of %d pods", len(pods))
}

// selecting gives the policies that select a pod in a direction.
func (o outcome) selecting(pod cluster.Key, ingress bool) []cluster.Key {
	return slices.DeleteFunc(slices.Clone(o.tables.Selected[pod]), func(key cluster.Key) bool {
		p := policyOf(o.snapshot, key)
		return ingress && !p.IsolatesIngress || !ingress && !p.IsolatesEgress
	})
}
