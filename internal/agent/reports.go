package agent

import (
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/agent/source"
	"github.com/beeline-cni/beeline/internal/agent/status"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// outlook is what to report to the cluster now.
func (a *Agent) outlook() status.Outlook {
	a.mu.Lock()
	p := a.problemSources(a.reconciler.Status())
	a.mu.Unlock()
	return p.outlook()
}

// outlook makes the sentences to report to the cluster.
func (p problemSources) outlook() status.Outlook {
	o := status.Outlook{Failure: p.failure}
	warn := func(reason string, all ...cluster.ObjectProblem) {
		for _, of := range all {
			o.Objects = append(o.Objects, status.Warning{ObjectProblem: of, Reason: reason})
		}
	}
	warn(status.ReasonPod, p.pods...)
	ofPods := problem.Set(problem.Texts(p.pods))
	own := slices.DeleteFunc(slices.Clone(p.node), func(text string) bool { return ofPods[text] })
	ofPolicies, others := p.policyWarnings()
	for _, w := range ofPolicies {
		reason := status.ReasonPolicyClosed
		if w.Open {
			reason = status.ReasonPolicyOpen
		}
		warn(reason, cluster.ObjectProblem{Kind: cluster.KindNetworkPolicy, Key: w.Policy, UID: w.UID, Text: w.Text})
	}
	services := p.services
	services.Problems = nil
	ofSource := p.agent.source.Problems()
	if server, ok := p.agent.source.(source.APIServer); ok {
		of := server.ObjectProblems()
		in := problem.Set(problem.Texts(of))
		ofSource = slices.DeleteFunc(ofSource, func(text string) bool { return in[text] })
		ofServices, pods, local := p.ofServices()
		warn(status.ReasonPod, pods...)
		others = append(others, local...)
		of = slices.Concat(of, ofServices, p.vetted)
		var ready []string
		if len(of) > 0 {
			ready = server.ReadyNodes() // thousands of names
		}
		of = slices.DeleteFunc(of, func(object cluster.ObjectProblem) bool {
			return !status.Elected(p.agent.config.NodeName, ready, object.Kind, object.Key)
		})
		warn(status.ReasonObject, of[:min(len(of), problem.Max)]...)
	} else {
		services = p.services
		others = append(others, problem.Texts(p.vetted)...)
	}
	o.Problems = problem.List(own, p.devices, services.All(), ofSource, others)
	return o
}

// ofServices divides the problems of Services and of host ports: what every node sees, problems of local pods, and
// this node's.
func (p problemSources) ofServices() (objects, pods []cluster.ObjectProblem, local []string) {
	for _, of := range p.services.Problems {
		switch {
		case of.Kind == cluster.KindPod:
			of.UID = p.ports[of.Key]
			pods = append(pods, of.ObjectProblem)
		case of.Local:
			local = append(local, of.Text)
		default:
			objects = append(objects, of.ObjectProblem)
		}
	}
	return objects, pods, local
}
