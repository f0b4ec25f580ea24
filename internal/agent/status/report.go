// Package status reports the state of a node: conditions and Events to the cluster, features and full tables to
// people.
package status

import (
	"context"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/cluster"
)

const (
	// unavailableAfter is how long a node may be not ready before its condition says so: an agent that is being
	// replaced, or a link that is being set up, is no reason to keep pods from a node.
	unavailableAfter = 30 * time.Second
	// announceAfter is how long a problem must last before it becomes an Event.
	announceAfter = 5 * time.Second
)

// Reasons of conditions and Events.
const (
	reasonReady        = "BeelineReady"
	reasonNotReady     = "BeelineNotReady"
	reasonProblem      = "BeelineProblem"
	ReasonPod          = "BeelinePodProblem"
	ReasonObject       = "BeelineObjectProblem"
	ReasonPolicyClosed = "BeelinePolicyClosed"
	ReasonPolicyOpen   = "BeelinePolicyNotEnforced"
)

// Reporter reports to the cluster. Only an API server accepts reports.
type Reporter interface {
	// Run sends reports until ctx ends.
	Run(ctx context.Context) error
	// Available says whether pods of this node can have a network.
	Available(available bool, reason, message string)
	// NodeEvent and ObjectEvent send warnings. Repeated ones are counted, and their rate is limited.
	NodeEvent(reason, message string)
	ObjectEvent(reason string, problem cluster.ObjectProblem)
	// Announce writes what this node tells the others to its Node.
	Announce(cluster.Announced)
}

// Outlook is what to report to the cluster.
type Outlook struct {
	Failure  error
	Problems []string
	// Objects are the problems of objects that this node reports.
	Objects []Warning
}

// Warning is a problem of an object, for an Event on it.
type Warning struct {
	cluster.ObjectProblem
	Reason string
}

// Reports reports the outlook of a node whenever it changes.
type Reports struct {
	reporter Reporter
	outlook  func() Outlook
	beat     *loop.Beat
	wake     loop.Signal
}

// NewReports makes the Reports of an outlook.
func NewReports(reporter Reporter, outlook func() Outlook, beat *loop.Beat) *Reports {
	return &Reports{reporter: reporter, outlook: outlook, beat: beat, wake: loop.NewSignal()}
}

// Update says that the outlook may have changed. It does not block.
func (r *Reports) Update() { r.wake.Set() }

// Run reports until ctx ends.
func (r *Reports) Run(ctx context.Context) error {
	a, again := announcer{Reporter: r.reporter}, &loop.Tick{}
	report := func() { again.In(a.Report(r.outlook(), time.Now())) }
	again.Do = func(time.Time) { report() }
	again.Within(0)
	l := loop.Loop{Beat: r.beat, Wake: r.wake, Work: report, Ticks: []*loop.Tick{again}}
	return l.Run(ctx)
}

// announcer keeps what was reported.
type announcer struct {
	Reporter Reporter
	// notReady is since when the node is not ready; zero while it is.
	notReady time.Time
	// problems has those of the node without an object.
	problems map[cluster.ObjectProblem]*announced
}

// announced is a problem: since when it lasts, and whether an Event reported it.
type announced struct {
	since    time.Time
	reported bool
}

// Report reports what is new, and returns the time after which there may be more without a change; 0 is never.
func (a *announcer) Report(o Outlook, now time.Time) (again time.Duration) {
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
	a.problems = map[cluster.ObjectProblem]*announced{}
	lasting := func(of cluster.ObjectProblem) bool {
		p := before[of]
		if p == nil {
			p = &announced{since: now}
		}
		a.problems[of] = p
		lasts := now.Sub(p.since)
		if !p.reported && lasts < announceAfter {
			later(announceAfter - lasts)
		}
		due := !p.reported && lasts >= announceAfter
		p.reported = p.reported || due
		return due
	}
	for _, text := range o.Problems {
		if lasting(cluster.ObjectProblem{Text: text}) {
			a.Reporter.NodeEvent(reasonProblem, text)
		}
	}
	for _, w := range o.Objects {
		isContainer := w.Kind == cluster.KindPod && w.Key.Namespace == "" // without a pod in the cluster
		if lasting(w.ObjectProblem) && !isContainer {
			a.Reporter.ObjectEvent(w.Reason, w.ObjectProblem)
		}
	}
	return again
}
