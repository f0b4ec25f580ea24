package agent

import (
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	"github.com/beeline-cni/beeline/internal/device/kernelprobe"
)

// paths are the modes that the configuration leaves open or the kernel does not support. They are chosen once, when
// the agent starts.
type paths struct {
	routing  node.Routing
	services lb.Mode
	policy   agentpolicy.Mode
	// noConntrack says that eBPF routing was requested beside kube-proxy on a kernel where they do not work together.
	noConntrack bool
	// cgroup is where sockets are connected to backends; noCgroup says why there is none.
	cgroup   string
	noCgroup error
}

// choosePaths probes the kernel for modes that the configuration leaves open.
func choosePaths(config Config) (paths, error) {
	w := paths{routing: config.Routing, services: config.Services, policy: config.Policy}
	if w.policy == agentpolicy.ModeAuto {
		w.policy = agentpolicy.ModeEBPF
	}
	if w.services == lb.ModeAuto {
		w.services = lb.ModeEBPF
	}
	if w.services == lb.ModeEBPF {
		w.cgroup, w.noCgroup = findCgroup(config.Cgroup)
	}
	if w.routing != node.RoutingEBPF || w.services != lb.ModeKubeProxy {
		return w, nil
	}
	if err := kernelprobe.LoadConntrack(); err != nil {
		return w, err
	}
	have, err := kernel.HaveConntrack()
	if err != nil {
		return w, err
	}
	if !have {
		w.routing, w.noConntrack = node.RoutingKernel, true
	}
	return w, nil
}

func (w paths) routingChoice(config Config) agentapi.Choice {
	c := agentapi.Choice{Name: "routing", Asked: string(config.Routing), Chosen: string(w.routing)}
	switch {
	case w.noConntrack:
		c.Why = "BPF programs cannot read this kernel's connection tracking (Linux 5.18, CONFIG_NF_CONNTRACK, CONFIG_DEBUG_INFO_BTF), which they need beside kube-proxy"
	case w.routing == node.RoutingKernel:
		c.Why = "as requested: the kernel stack forwards"
	default:
		c.Why = "packets between pods bypass the kernel stack"
	}
	return c
}

func (w paths) servicesChoice(config Config) agentapi.Choice {
	c := agentapi.Choice{Name: "services", Asked: string(config.Services), Chosen: string(w.services), Why: "as requested"}
	switch {
	case w.noCgroup != nil:
		c.Why = "packet by packet: " + w.noCgroup.Error()
	case w.services == lb.ModeEBPF:
		c.Why = "sockets below " + w.cgroup + " connect to backends; packets from elsewhere are translated"
	}
	return c
}

func (w paths) policyChoice(config Config) agentapi.Choice {
	c := agentapi.Choice{Name: "policy", Asked: string(config.Policy), Chosen: string(w.policy), Why: "as requested: NetworkPolicies have no effect on this node"}
	if w.policy == agentpolicy.ModeEBPF {
		c.Why = "NetworkPolicies are enforced where packets leave and enter pods"
	}
	return c
}
