package agent

import (
	"github.com/beeline-cni/beeline/internal/agent/lb"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/agent/reconcile"
	"github.com/beeline-cni/beeline/internal/agent/source"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// problemSources are the inputs of problems. There may be many, and queries may be frequent: the sentences are made
// without the agent's lock, for which ADD waits.
type problemSources struct {
	services lb.Outcome
	agent    *Agent
	// vetted are those of the addresses of Nodes.
	vetted  []cluster.ObjectProblem
	failure error
	// node are those of this node, with pods those of single pods among them.
	node []string
	pods []cluster.ObjectProblem
	// ports are the UIDs of the pods with host ports.
	ports map[cluster.Key]string
	// devices are those of settings and of uplinks.
	devices []string
	// policiesIgnored is the snapshot whose policies this node does not enforce, if so.
	policiesIgnored *cluster.Snapshot
}

// problemSources needs the agent's lock, as the status of the node does.
func (a *Agent) problemSources(node reconcile.Status) problemSources {
	p := problemSources{agent: a, failure: node.NotReady, vetted: a.vetter.Problems(), node: node.Desired.Problems, pods: node.Desired.Pods, ports: a.endpoints.HostPortPods()}
	if a.servicesStatus != nil {
		p.services = a.servicesStatus()
	}
	if a.modes.NoCgroup != nil {
		p.devices = append(p.devices, a.modes.NoCgroup.Error())
	}
	if a.healthzProblem != "" {
		p.devices = append(p.devices, a.healthzProblem)
	}
	p.devices = append(p.devices, a.programs.Problems()...)
	if a.sameNode != nil {
		p.devices = append(p.devices, a.sameNode.Problems()...)
	}
	if a.ipPools != nil {
		p.devices = append(p.devices, a.ipPools.Problems()...)
	}
	if a.policies == nil && node.Snapshot != nil && len(node.Snapshot.NetworkPolicies) > 0 {
		p.policiesIgnored = node.Snapshot
	}
	return p
}

// listed are the problems of the node, most important first, each once.
func (p problemSources) listed() []string {
	var failure []string
	if p.failure != nil {
		failure = []string{p.failure.Error()}
	}
	var tables []string
	if p.agent.tables != nil {
		tables = p.agent.tables.Problems()
	}
	return problem.List(failure, p.node, p.devices, p.services.All(), p.policies(), p.agent.source.Problems(), problem.Texts(p.vetted), tables)
}

// policies are those of NetworkPolicies.
func (p problemSources) policies() []string {
	switch {
	case p.agent.policies != nil:
		return p.agent.policies.Problems()
	case p.policiesIgnored != nil:
		return []string{agentpolicy.NotEnforced(p.policiesIgnored)}
	}
	return nil
}

// policyWarnings are the problems of policies for Events on them, and the other problems.
func (p problemSources) policyWarnings() (ofPolicies []agentpolicy.Warning, others []string) {
	if p.agent.policies == nil {
		return nil, p.policies()
	}
	_, reported := p.agent.source.(source.APIServer)
	return p.agent.policies.Warnings(reported)
}
