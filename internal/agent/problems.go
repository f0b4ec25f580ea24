package agent

import (
	"fmt"
	"log/slog"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
)

// problemsListed bounds each list of problems that people and metrics get: who mends these sees the next ones.
const problemsListed = 100

// sentences are the texts of problems.
func sentences(problems []service.Problem) (all []string) {
	for _, p := range problems {
		all = append(all, p.Text)
	}
	return all
}

// set is a list of sentences, to look them up.
func set(all []string) map[string]bool {
	in := make(map[string]bool, len(all))
	for _, p := range all {
		in[p] = true
	}
	return in
}

// listed gives each sentence once, in its first place, and only so many.
func listed(lists ...[]string) (all []string) {
	in := map[string]bool{}
	for _, list := range lists {
		more := 0
		for i, p := range list {
			switch {
			case in[p]:
			case i >= problemsListed:
				more++
			default:
				in[p] = true
				all = append(all, p)
			}
		}
		if more > 0 {
			all = append(all, fmt.Sprintf("and %d more problems of this kind", more))
		}
	}
	return all
}

// problemSources are what problems are made of. There may be many, and people may ask often: they are put into words without the agent's
// lock, for which ADD waits.
type problemSources struct {
	agent   *Agent
	failure error
	// node are those of this node, with pods those of single pods among them.
	node []string
	pods []podProblem
	// ports are the pods that have ports of this node.
	ports map[cluster.Key]agentapi.PodRef
	// devices are those of settings and of uplinks.
	devices []string
	// policiesIgnored is the snapshot whose policies nobody enforces here, if that is so.
	policiesIgnored *cluster.Snapshot
}

// problemSources needs the agent's lock.
func (a *Agent) problemSources() problemSources {
	p := problemSources{agent: a, failure: a.unready(), node: a.current.problems, pods: a.current.pods, ports: map[cluster.Key]agentapi.PodRef{}}
	for _, e := range a.endpoints {
		if len(e.PortMappings) > 0 {
			p.ports[podKey(e)] = e.Pod
		}
	}
	if a.ways.noCgroup != nil {
		p.devices = append(p.devices, a.ways.noCgroup.Error())
	}
	if a.healthzProblem != "" {
		p.devices = append(p.devices, a.healthzProblem)
	}
	for _, u := range a.uplinks {
		if err := a.accelerated[u.Name].err; err != nil {
			p.devices = append(p.devices, "--nodeport-acceleration=xdp: "+err.Error())
		}
	}
	if a.policies == nil && a.snapshot != nil && len(a.snapshot.NetworkPolicies) > 0 {
		p.policiesIgnored = a.snapshot
	}
	return p
}

// listed are what keeps the node from being whole, most important first, each once.
func (p problemSources) listed() []string {
	var failure []string
	if p.failure != nil {
		failure = []string{p.failure.Error()}
	}
	var tables []string
	if p.agent.tables != nil {
		tables = p.agent.tables.problems()
	}
	return listed(failure, p.node, p.devices, p.services().all(), p.policies(), p.agent.source.Problems(), objectSentences(p.agent.vetting.current()), tables)
}

// services is what became of Services.
func (p problemSources) services() serviceOutcome {
	if p.agent.services == nil {
		return serviceOutcome{}
	}
	return p.agent.services.current()
}

// policies are those of NetworkPolicies.
func (p problemSources) policies() []string {
	a := p.agent
	if a.policies == nil {
		if p.policiesIgnored != nil {
			return []string{noEffect(p.policiesIgnored)}
		}
		return nil
	}
	all := a.policies.current().all()
	if a.ways.services == ServicesKubeProxy {
		all = append(all, a.policies.current().besideKubeProxy()...)
	}
	if snapshot, _ := a.policies.newest(); snapshot != nil && !knownPolicies(snapshot) {
		all = append(all, unknownPolicies(snapshot))
	}
	return all
}

// logNew logs the sentences that were not there before.
func logNew(log *slog.Logger, before, now []string) {
	if len(now) == 0 {
		return
	}
	known, told := set(before), 0
	for _, p := range now {
		if known[p] {
			continue
		}
		if told++; told > problemsListed {
			log.Warn("more problems, of which only status tells")
			return
		}
		log.Warn("problem", "problem", p)
	}
}
