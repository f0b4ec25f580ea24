// Package status reports the state of a node: conditions and Events to the cluster, features and full tables to
// people.
package status

import (
	"context"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/cluster"
)

const (
	// unavailableAfter is how long a node may be not ready before its condition says so: an agent that is being
	// replaced, or a link that is being set up, is no reason to keep pods from a node.
	unavailableAfter = 30 * time.Second
	// AnnounceAfter is how long a problem must last before it becomes an Event.
	AnnounceAfter = 5 * time.Second
)

// Reasons of conditions and Events.
const (
	reasonReady        = "BeelineReady"
	reasonNotReady     = "BeelineNotReady"
	reasonProblem      = "BeelineProblem"
	reasonPodProblem   = "BeelinePodProblem"
	reasonObject       = "BeelineObjectProblem"
	reasonPolicyClosed = "BeelinePolicyClosed"
	reasonPolicyOpen   = "BeelinePolicyNotEnforced"
)

// Reporter reports to the cluster. Only an API server accepts reports.
type Reporter interface {
	// Run sends reports until ctx ends.
	Run(ctx context.Context) error
	// Available says whether pods of this node can have a network.
	Available(available bool, reason, message string)
	// NodeEvent warns about this node, ObjectEvent about any object. Repeated warnings are counted, and their rate is
	// limited.
	NodeEvent(reason, message string)
	ObjectEvent(reason string, problem cluster.ObjectProblem)
}

// Outlook is what to report to the cluster.
type Outlook struct {
	Failure  error
	Problems []string
	Pods     []node.PodProblem
	Policies []agentpolicy.Warning
	// Objects are problems that every node sees, and that this one reports.
	Objects []cluster.ObjectProblem
}

// Reports reports the outlook of a node whenever it changes.
type Reports struct {
	reporter Reporter
	outlook  func() Outlook
	beat     *loop.Beat
	wake     loop.Signal
}

// NewReports makes the Reports of an outlook. Without a reporter it does nothing.
func NewReports(reporter Reporter, outlook func() Outlook, beat *loop.Beat) *Reports {
	return &Reports{reporter: reporter, outlook: outlook, beat: beat, wake: loop.NewSignal()}
}

// Update says that the outlook may have changed. It does not block.
func (r *Reports) Update() { r.wake.Set() }

// Run reports until ctx ends.
func (r *Reports) Run(ctx context.Context) error {
	if r.reporter == nil {
		<-ctx.Done()
		return nil
	}
	announcer, again := Announcer{Reporter: r.reporter}, &loop.Tick{}
	report := func() { again.In(announcer.Report(r.outlook(), time.Now())) }
	again.Do = func(time.Time) { report() }
	again.Within(0)
	l := loop.Loop{Beat: r.beat, Wake: r.wake, Work: report, Ticks: []*loop.Tick{again}}
	return l.Run(ctx)
}

// Announcer keeps what was reported.
type Announcer struct {
	Reporter Reporter
	// notReady is since when the node is not ready; zero while it is.
	notReady time.Time
	problems map[string]*announced
}

// announced is a problem: since when it lasts, and whether an Event reported it.
type announced struct {
	since    time.Time
	reported bool
}

// Report reports what is new, and returns the time after which there may be more without a change; 0 is never.
func (a *Announcer) Report(o Outlook, now time.Time) (again time.Duration) {
	later := func(d time.Duration) {
		if again == 0 || d < again {
			again = d
		}
	}
	switch {
	case o.Failure == nil:
		a.notReady = time.Time{}
		a.Reporter.Available(true, reasonReady, "Beeline gives pods of this node their network")
	case a.notReady.IsZero():
		a.notReady = now
		later(unavailableAfter)
	case now.Sub(a.notReady) < unavailableAfter:
		later(unavailableAfter - now.Sub(a.notReady))
	default:
		a.Reporter.Available(false, reasonNotReady, o.Failure.Error())
	}

	before := a.problems
	a.problems = map[string]*announced{}
	lasting := func(key string) bool {
		p := before[key]
		if p == nil {
			p = &announced{since: now}
		}
		a.problems[key] = p
		lasts := now.Sub(p.since)
		if !p.reported && lasts < AnnounceAfter {
			later(AnnounceAfter - lasts)
		}
		due := !p.reported && lasts >= AnnounceAfter
		p.reported = p.reported || due
		return due
	}
	for _, text := range o.Problems {
		if lasting(text) {
			a.Reporter.NodeEvent(reasonProblem, text)
		}
	}
	for _, p := range o.Pods {
		if lasting(p.Pod.UID+" "+p.Text) && p.Pod.Name != "" {
			key := cluster.Key{Namespace: p.Pod.Namespace, Name: p.Pod.Name}
			a.Reporter.ObjectEvent(reasonPodProblem, cluster.ObjectProblem{Kind: cluster.KindPod, Key: key, UID: p.Pod.UID, Text: p.Text})
		}
	}
	for _, p := range o.Objects {
		if lasting(string(p.Kind) + " " + p.Key.String() + " " + p.UID + " " + p.Text) {
			a.Reporter.ObjectEvent(reasonObject, p)
		}
	}
	for _, p := range o.Policies {
		if lasting(p.Policy.String() + " " + p.UID + " " + p.Text) {
			reason := reasonPolicyClosed
			if p.Open {
				reason = reasonPolicyOpen
			}
			a.Reporter.ObjectEvent(reason, cluster.ObjectProblem{Kind: cluster.KindNetworkPolicy, Key: p.Policy, UID: p.UID, Text: p.Text})
		}
	}
	return again
}
