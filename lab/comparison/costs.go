package comparison

import (
	"github.com/beeline-cni/beeline/lab/result"
)

// The names of what networks cost beside the workloads. The changes of Services and policies have the names that
// result.ServiceChange and result.PolicyChange give them, in milliseconds until traffic follows.
const (
	// Add, AddProbed and Del are the times of CNI ADD, of ADD with an address that is probed, and of DEL.
	Add       = "cni_add"
	AddProbed = "cni_add_probed"
	Del       = "cni_del"
	// AgentMemory is the resident memory of the agent, MapMemory that of its BPF maps, IdleCPU its share of a core at rest.
	AgentMemory = "agent_memory"
	MapMemory   = "map_memory"
	IdleCPU     = "idle_cpu"
	// ServicesStart is the time from the start of the agent, or of kube-proxy, until all Services work.
	ServicesStart       = "services_start"
	ServicesAgentMemory = "services_agent_memory"
	ServicesMapMemory   = "services_map_memory"
	// PolicyCompile is the time from an empty start until all policies are in the kernel, PolicyChange that of one change.
	PolicyCompile   = "policy_compile"
	PolicyChange    = "policy_change"
	PolicyMapMemory = "policy_map_memory"
)

// BPFTime is the metric of the run time of all BPF programs of a path for one packet, in ns.
const BPFTime = "bpf_time"

// programs are the run times of BPF programs, by workload and path.
func programs(run *result.Run) []Figure {
	var keys []Key
	sum := map[Key]float64{}
	for _, p := range run.Programs {
		if p.Packets == 0 {
			continue
		}
		k := Key{Network: p.Network, Name: p.Workload, Metric: BPFTime, Path: p.Path}
		if _, ok := sum[k]; !ok {
			keys = append(keys, k)
		}
		sum[k] += float64(p.Nanoseconds) / float64(p.Packets)
	}
	var list []Figure
	for _, k := range keys {
		for _, f := range once(k, "ns", sum[k]) {
			f.Headline = false
			list = append(list, f)
		}
	}
	return list
}

// costs are those without traffic, of Services and of policies.
func costs(run *result.Run) (list []Figure) {
	add := func(figures []Figure) { list = append(list, figures...) }
	for _, f := range run.Footprints {
		name := func(name string) Key { return Key{Network: f.Network, Name: name} }
		add(of(name(Add), "ms", f.AddMilliseconds))
		add(of(name(AddProbed), "ms", f.ProbedAddMilliseconds))
		add(of(name(Del), "ms", f.DelMilliseconds))
		add(once(name(AgentMemory), "B", float64(f.AgentRSSBytes)))
		add(once(name(MapMemory), "B", float64(f.MapBytes)))
		if f.IdleCPU != nil {
			add(once(name(IdleCPU), "%", *f.IdleCPU*100))
		}
	}
	if s := run.Services; s != nil {
		for _, c := range s.Convergence {
			add(of(Key{Network: c.Network, Name: string(c.Change), Objects: c.Services}, "ms", c.Milliseconds))
		}
		for _, y := range s.Syncs {
			name := func(name string) Key { return Key{Network: y.Network, Name: name, Objects: y.Services} }
			add(of(name(ServicesStart), "s", y.Seconds))
			add(once(name(ServicesAgentMemory), "B", float64(y.RSSBytes)))
			add(once(name(ServicesMapMemory), "B", float64(y.MapBytes)))
		}
	}
	if p := run.Policy; p != nil {
		for _, c := range p.Convergence {
			add(of(Key{Network: c.Network, Name: string(c.Change), Objects: c.Policies}, "ms", c.Milliseconds))
		}
		for _, c := range p.Compiled {
			name := func(name string) Key { return Key{Network: c.Network, Name: name, Objects: c.Policies} }
			add(of(name(PolicyCompile), "ms", c.FullMilliseconds))
			add(of(name(PolicyChange), "ms", c.ChangeMilliseconds))
			add(once(name(PolicyMapMemory), "B", float64(c.TableBytes)))
		}
	}
	return list
}
