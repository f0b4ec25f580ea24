package agent

import (
	"context"
	"fmt"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/mode"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/device/localport"
	"github.com/beeline-cni/beeline/internal/device/sock"
)

// datapath is the configuration of the datapath.
func (c Config) datapath(w mode.Modes) (config.Datapath, error) {
	host, err := sock.NetnsCookie()
	if err != nil {
		return config.Datapath{}, err
	}
	tunnelPort := c.TunnelPort
	if c.Tunnel == node.TunnelNone && c.Encryption == node.EncryptionNone {
		tunnelPort = 0 // packets to the port belong to another listener
	}
	return config.Datapath{
		TunnelPort: uint16(tunnelPort),

		Encryption: c.Encryption.Datapath(), PlaintextAllowed: !c.EncryptionStrict,

		Root:          c.BPFFS,
		Netkit:        w.NoNetkit == nil,
		EBPFRouting:   w.Routing == node.RoutingEBPF,
		Macvlan:       w.Routing == node.RoutingEBPF,
		Masquerade:    c.Masquerade,
		StackServices: w.Services == lb.ModeKubeProxy,
		Services:      w.Services == lb.ModeEBPF,
		Policy:        w.Policy == agentpolicy.ModeEBPF,
		Flows:         c.Flows.Datapath(),
		FlowsRate:     uint32(c.FlowsRate),
		FlowsSample:   uint32(c.FlowsSample),
		DSR:           c.NodePortMode == lb.NodePortDSR,
		HostNetns:     host,
		NATPorts:      localport.Range(c.NATPorts),
		MaglevSize:    int(c.MaglevTableSize),
		Cgroup:        w.Cgroup,
		Acceleration:  c.NodePortAcceleration,
		Sizes: config.Sizes{
			Routes: uint32(c.RoutesMax), Services: uint32(c.Sizes.Services), Backends: uint32(c.Sizes.Backends), NAT: uint32(c.Sizes.NAT),
			NATPending: uint32(c.Sizes.NATPending), Affinities: uint32(c.Sizes.Affinities),
			Identities: uint32(c.PolicySizes.Identities), Policies: uint32(c.PolicySizes.Policies), Conntrack: uint32(c.PolicySizes.Conntrack),
		},
	}, nil
}

// newServices makes the Services, where the datapath translates them.
func (a *Agent) newServices() {
	if a.modes.Services != lb.ModeEBPF {
		return
	}
	hooks := lb.Hooks{BackendsGone: a.expiry.BackendsGone, Reconcile: a.wake.Set}
	a.services = lb.New(a.config.ServiceConfig, a.datapath.Services, hooks, a.beats.Add("the loop of Services"), a.log)
	a.servicesStatus = a.services.Status
}

// Services implements agentapi.Service.
func (a *Agent) Services(_ context.Context, which agentapi.ServiceFilter) ([]agentapi.ServicePort, error) {
	if a.services == nil {
		return nil, agentapi.Errorf(agentapi.CodeInvalid, "this agent does not translate Services (--services=%s)", a.modes.Services)
	}
	return a.services.List(which)
}

// setHealthzProblem records the result of listening at --healthz-address.
func (a *Agent) setHealthzProblem(err error) {
	problem := ""
	if err != nil {
		problem = fmt.Sprintf("health checks of load balancers at --healthz-address %s fail (does kube-proxy still run?): %v", a.config.HealthzAddress, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if problem != "" && problem != a.healthzProblem {
		a.log.Warn("problem", "problem", problem)
	}
	a.healthzProblem = problem
}

// eligible reports whether load balancers should send new connections to this node.
func (a *Agent) eligible() bool { return !a.reconciler.Leaving() }
