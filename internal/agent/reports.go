package agent

import (
	"context"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/agent/source"
	"github.com/beeline-cni/beeline/internal/agent/status"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// outlook is what to report to the cluster now.
func (a *Agent) outlook() status.Outlook {
	a.mu.Lock()
	p := a.problemSources()
	a.mu.Unlock()
	return p.outlook()
}

// outlook makes the sentences to report to the cluster.
func (p problemSources) outlook() status.Outlook {
	o := status.Outlook{Failure: p.failure, Pods: p.pods}
	ofPods := map[string]bool{}
	for _, pod := range o.Pods {
		ofPods[pod.Text] = true
	}
	var own, others []string
	for _, text := range p.node {
		if !ofPods[text] {
			own = append(own, text)
		}
	}
	o.Policies, others = p.policyWarnings()
	services := p.services
	services.Problems = nil
	ofSource := p.agent.source.Problems()
	if server, ok := p.agent.source.(source.APIServer); ok {
		of := server.ObjectProblems()
		in := problem.Set(source.Sentences(of))
		ofSource = slices.DeleteFunc(ofSource, func(text string) bool { return in[text] })
		ofServices, pods, local := p.ofServices()
		of = slices.Concat(of, ofServices, p.vetted)
		var ready []string
		if len(of) > 0 {
			ready = server.ReadyNodes() // thousands of names
		}
		for _, object := range of {
			if status.Elected(p.agent.config.NodeName, ready, object.Kind, object.Key) {
				o.Objects = append(o.Objects, object)
			}
		}
		o.Objects = o.Objects[:min(len(o.Objects), problem.Max)]
		o.Pods = slices.Concat(o.Pods, pods)
		others = append(others, local...)
	} else {
		services = p.services
		others = append(others, source.Sentences(p.vetted)...)
	}
	o.Problems = problem.List(own, p.devices, services.All(), ofSource, others)
	return o
}

// ofServices divides the problems of Services and of host ports: what every node sees, problems of local pods, and
// this node's.
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

// runReporter sends reports until ctx ends.
func (a *Agent) runReporter(ctx context.Context) error {
	if a.reporter == nil {
		<-ctx.Done()
		return nil
	}
	return a.reporter.Run(ctx)
}
