package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	if c.Tunnel == node.TunnelNone {
		tunnelPort = 0 // packets to the port belong to another listener
	}
	return config.Datapath{
		TunnelPort:    uint16(tunnelPort),
		Root:          c.BPFFS,
		EBPFRouting:   w.Routing == node.RoutingEBPF,
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
func (a *Agent) newServices() (err error) {
	if a.modes.Services != lb.ModeEBPF {
		return nil
	}
	hooks := lb.Hooks{BackendsGone: a.expiry.BackendsGone, Reconcile: a.reconcileSoon}
	a.services = lb.New(a.config.ServiceConfig, a.datapath.Services, hooks, a.beats.Add("the loop of Services"), a.log)
	a.servicesStatus = a.services.Status
	a.servicesLost, err = a.datapath.ServicesLost()
	return err
}

// reconcileSoon requests a reconciliation. It does not block.
func (a *Agent) reconcileSoon() {
	a.servicesChanged.Set()
}

// Services implements agentapi.Service.
func (a *Agent) Services(_ context.Context, which agentapi.ServiceFilter) ([]agentapi.ServicePort, error) {
	if a.services == nil {
		return nil, agentapi.Errorf(agentapi.CodeInvalid, "this agent does not translate Services (--services=%s)", a.modes.Services)
	}
	return a.services.List(which)
}

// errServicesMissing keeps the programs of an earlier agent attached.
var errServicesMissing = errors.New("programs with other tables of Services wait for the cluster's Services, without which connections to them would fail")

// applyServices hands over the state of the node. When the agent starts, it waits for Services that are synced
// already.
func (a *Agent) applyServices(want node.Desired) {
	if a.services == nil {
		return
	}
	a.services.UpdateHostPorts(a.endpoints.HostPorts())
	a.services.UpdateNode(want.Services)
	if !a.services.Status().Synced {
		_ = a.services.Pass() // errors are in the outcome
	}
}

// attachPrograms attaches programs to devices and sockets. If an earlier agent has left programs that translate
// Services, but not their tables, these stay until the new tables are filled. Otherwise nothing is lost by Services
// that come later.
func (a *Agent) attachPrograms(want node.Desired) error {
	if err := a.missesServices(time.Now()); err != nil {
		return err
	}
	if a.policiesLost && !a.policies.Filled() {
		return errPoliciesMissing
	}
	return a.programs.Attach(a.endpoints, want.Tunnel.Index)
}

// servicesPatience is how long programs of an earlier agent stay for the sake of connections to Services; no pod is
// added meanwhile.
const servicesPatience = 5 * time.Minute

// missesServices says why programs of an earlier agent are not replaced yet, if so. If the cluster cannot be read for
// longer than its pods can wait, existing connections lose what the old programs did for them; sockets keep theirs.
func (a *Agent) missesServices(now time.Time) error {
	if !a.servicesLost || a.services.Filled() {
		return nil
	}
	if until := a.started.Add(servicesPatience); now.Before(until) {
		return fmt.Errorf("%w; they are replaced without at %s", errServicesMissing, until.UTC().Format(time.TimeOnly))
	}
	a.servicesLost = false
	a.log.Warn("programs of an earlier agent are replaced before Services are synced: connections that they translated break", "waited", servicesPatience)
	return nil
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
func (a *Agent) eligible() bool { return !a.leaving.Load() }
