package agent

import (
	"context"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/cluster"
)

const (
	// unavailableAfter is how long a node may be not ready before its condition says so: an agent that is
	// being replaced, or a link that is being set up, is no reason to keep pods from a node.
	unavailableAfter = 30 * time.Second
	// announceAfter is how long a problem has to last before it becomes an Event.
	announceAfter = 5 * time.Second
)

// Reasons of conditions and Events.
const (
	reasonReady        = "BeelineReady"
	reasonNotReady     = "BeelineNotReady"
	reasonProblem      = "BeelineProblem"
	reasonPodProblem   = "BeelinePodProblem"
	reasonObject       = "BeelineObjectProblem"
	reasonPolicyClosed = "BeelinePolicyClosed"
	reasonPolicyOpen   = "BeelinePolicyNotInForce"
)

// reporter tells the cluster about this node. Only the API server has a place for it.
type reporter interface {
	// Run sends what the others are told, until ctx ends.
	Run(ctx context.Context) error
	// Available says whether pods of this node can have a network.
	Available(available bool, reason, message string)
	// NodeEvent and PodEvent warn of something. The same one again is counted, and many are held back.
	NodeEvent(reason, message string)
	PodEvent(namespace, name, uid, reason, message string)
	// PolicyEvent does the same on a NetworkPolicy, ObjectEvent on an object of any kind.
	PolicyEvent(namespace, name, uid, reason, message string)
	ObjectEvent(kind cluster.Kind, namespace, name, uid, reason, message string)
}

// outlook is what is told to the cluster.
type outlook struct {
	failure  error
	problems []string
	pods     []node.PodProblem
	policies []agentpolicy.Warning
	// objects are problems that every node sees, and that this one reports.
	objects []cluster.ObjectProblem
}

// outlook gives the present one.
func (a *Agent) outlook() outlook {
	a.mu.Lock()
	p := a.problemSources()
	a.mu.Unlock()
	return p.outlook()
}

// outlook puts into words what is told to the cluster.
func (p problemSources) outlook() outlook {
	o := outlook{failure: p.failure, pods: p.pods}
	ofPods := map[string]bool{}
	for _, pod := range o.pods {
		ofPods[pod.Text] = true
	}
	var node, others []string
	for _, text := range p.node {
		if !ofPods[text] {
			node = append(node, text)
		}
	}
	o.policies, others = p.policyWarnings()
	services := p.services
	services.Problems = nil
	source := p.agent.source.Problems()
	if server, ok := p.agent.source.(remote); ok {
		of := server.ObjectProblems()
		in := problem.Set(objectSentences(of))
		source = slices.DeleteFunc(source, func(text string) bool { return in[text] })
		own, pods, local := p.ofServices()
		of = slices.Concat(of, own, p.agent.vetting.current())
		var ready []string
		if len(of) > 0 {
			ready = server.ReadyNodes() // thousands of names
		}
		for _, problem := range of {
			if elected(p.agent.config.NodeName, ready, problem.Kind, problem.Key) {
				o.objects = append(o.objects, problem)
			}
		}
		o.objects = o.objects[:min(len(o.objects), problem.Max)]
		o.pods = slices.Concat(o.pods, pods)
		others = append(others, local...)
	} else {
		services = p.services
		others = append(others, objectSentences(p.agent.vetting.current())...)
	}
	o.problems = problem.List(node, p.devices, services.All(), source, others)
	return o
}

// ofServices divides the problems of Services and of pods' ports: those that every node sees, those of pods here, and this node's.
func (p problemSources) ofServices() (objects []cluster.ObjectProblem, pods []node.PodProblem, local []string) {
	for _, problem := range p.services.Problems {
		switch {
		case problem.Pod:
			pods = append(pods, node.PodProblem{Pod: p.ports[problem.Object], Text: problem.Text})
		case problem.Local:
			local = append(local, problem.Text)
		default:
			objects = append(objects, cluster.ObjectProblem{Kind: cluster.KindService, Key: problem.Object, UID: problem.UID, Text: problem.Text})
		}
	}
	return objects, pods, local
}

// report sends what announce tells, until ctx ends.
func (a *Agent) report(ctx context.Context) error {
	if a.reporter == nil {
		<-ctx.Done()
		return nil
	}
	return a.reporter.Run(ctx)
}

// announce tells the cluster how this node is, until ctx ends.
func (a *Agent) announce(ctx context.Context) error {
	if a.reporter == nil {
		<-ctx.Done()
		return nil
	}
	told, again := announcer{reporter: a.reporter}, &loop.Tick{}
	tell := func() { again.In(told.tell(a.outlook(), time.Now())) }
	again.Do = func(time.Time) { tell() }
	again.Within(0)
	l := loop.Loop{Beat: a.beats.Add("the loop of reports"), Wake: a.reconciledOnce, Work: tell, Ticks: []*loop.Tick{again}}
	return l.Run(ctx)
}

// announcer remembers what was told.
type announcer struct {
	reporter reporter
	// notReady is since when the node is not; zero while it is.
	notReady time.Time
	problems map[string]*announced
}

// announced is a problem, since when it lasts, and whether there was an Event for it.
type announced struct {
	since time.Time
	told  bool
}

// tell tells what is new and gives the time after which there may be more without a change; 0 is never.
func (a *announcer) tell(o outlook, now time.Time) (again time.Duration) {
	later := func(d time.Duration) {
		if again == 0 || d < again {
			again = d
		}
	}
	switch {
	case o.failure == nil:
		a.notReady = time.Time{}
		a.reporter.Available(true, reasonReady, "Beeline gives pods of this node their network")
	case a.notReady.IsZero():
		a.notReady = now
		later(unavailableAfter)
	case now.Sub(a.notReady) < unavailableAfter:
		later(unavailableAfter - now.Sub(a.notReady))
	default:
		a.reporter.Available(false, reasonNotReady, o.failure.Error())
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
		if !p.told && lasts < announceAfter {
			later(announceAfter - lasts)
		}
		due := !p.told && lasts >= announceAfter
		p.told = p.told || due
		return due
	}
	for _, text := range o.problems {
		if lasting(text) {
			a.reporter.NodeEvent(reasonProblem, text)
		}
	}
	for _, p := range o.pods {
		if lasting(p.Pod.UID+" "+p.Text) && p.Pod.Name != "" {
			a.reporter.PodEvent(p.Pod.Namespace, p.Pod.Name, p.Pod.UID, reasonPodProblem, p.Text)
		}
	}
	for _, p := range o.objects {
		if lasting(string(p.Kind) + " " + p.Key.String() + " " + p.UID + " " + p.Text) {
			a.reporter.ObjectEvent(p.Kind, p.Key.Namespace, p.Key.Name, p.UID, reasonObject, p.Text)
		}
	}
	for _, p := range o.policies {
		if lasting(p.Policy.String() + " " + p.UID + " " + p.Text) {
			reason := reasonPolicyClosed
			if p.Open {
				reason = reasonPolicyOpen
			}
			a.reporter.PolicyEvent(p.Policy.Namespace, p.Policy.Name, p.UID, reason, p.Text)
		}
	}
	return again
}

// lookAgain has announce look at what is new. It does not block.
func (a *Agent) lookAgain() { a.reconciledOnce.Set() }
