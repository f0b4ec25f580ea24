package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/service"
)

// datapath is what the datapath has to know of the configuration.
func (c Config) datapath(w ways) (datapath.Config, error) {
	host, err := device.NamespaceCookie()
	if err != nil {
		return datapath.Config{}, err
	}
	tunnelPort := c.TunnelPort
	if c.Tunnel == TunnelNone {
		tunnelPort = 0 // what comes there is for whoever listens
	}
	return datapath.Config{
		TunnelPort:    uint16(tunnelPort),
		Root:          c.BPFFS,
		EBPFRouting:   w.routing == RoutingEBPF,
		Masquerade:    c.Masquerade,
		StackServices: w.services == ServicesKubeProxy,
		Services:      w.services == ServicesEBPF,
		Policy:        w.policy == PolicyEBPF,
		Flows:         c.Flows.Datapath(),
		FlowsRate:     uint32(c.FlowsRate),
		FlowsSample:   uint32(c.FlowsSample),
		DSR:           c.NodePortMode == NodePortDSR,
		HostNetns:     host,
		NATPorts:      device.PortSpan(c.NATPorts),
		MaglevSize:    int(c.MaglevTableSize),
		Cgroup:        w.cgroup,
		Acceleration:  c.NodePortAcceleration,
		Sizes: datapath.Sizes{
			Routes: uint32(c.RoutesMax), Services: uint32(c.Sizes.Services), Backends: uint32(c.Sizes.Backends), Connections: uint32(c.Sizes.Connections),
			Openings: uint32(c.Sizes.Openings), Affinities: uint32(c.Sizes.Affinities),
			Identities: uint32(c.PolicySizes.Identities), Policies: uint32(c.PolicySizes.Policies), Sessions: uint32(c.PolicySizes.Sessions),
		},
	}, nil
}

// newServices makes what brings Services into the datapath, where that translates them.
func (a *Agent) newServices() (err error) {
	if a.ways.services != ServicesEBPF {
		return nil
	}
	a.services = newServices(a.datapath.Services, a.metrics, a.log)
	a.health = newHealthServers(a.services.working)
	a.health.everywhere = len(a.config.NodePortAddresses) == 0
	a.services.health = a.health.sync
	a.services.gone = a.backendsGone
	a.services.reconcile = a.reconcileSoon
	a.services.beat = a.beats.Add("the loop of Services")
	a.servicesLost, err = a.datapath.ServicesLost()
	return err
}

// reconcileSoon asks for a reconciliation. It does not block.
func (a *Agent) reconcileSoon() {
	a.servicesChanged.Set()
}

// runServices carries Services into the datapath until ctx ends.
func (a *Agent) runServices(ctx context.Context) error {
	if a.services == nil {
		<-ctx.Done()
		return nil
	}
	defer a.health.close()
	return a.services.run(ctx)
}

// errServicesMissing keeps the programs of an earlier agent in place.
var errServicesMissing = errors.New("programs with other tables of Services wait for the cluster's Services, without which connections to them would fail")

// feedServices tells what has been found out about the node. When the agent starts it waits for Services that are known already.
func (a *Agent) feedServices(want desired) {
	if a.services == nil {
		return
	}
	a.services.setHostPorts(a.hostPorts())
	a.services.setNode(want.services)
	if !a.services.current().synced {
		_ = a.services.pass() // what failed is in the outcome
	}
}

// hostPorts are the ports of this node that lead to its pods, older pods first.
func (a *Agent) hostPorts() []service.HostPort {
	var mapped []agentapi.Endpoint
	for _, e := range a.endpoints {
		if len(e.PortMappings) > 0 {
			mapped = append(mapped, e)
		}
	}
	slices.SortFunc(mapped, func(x, y agentapi.Endpoint) int {
		return cmp.Or(x.Added.Compare(y.Added), cmp.Compare(x.HostDevice, y.HostDevice))
	})
	var all []service.HostPort
	for _, e := range mapped {
		for _, m := range e.PortMappings {
			h := service.HostPort{Pod: podKey(e), Protocol: protocolOf(m.Protocol), Number: m.HostPort, Address: m.HostIP}
			for _, addr := range e.Addresses {
				h.Backends = append(h.Backends, netip.AddrPortFrom(addr, m.ContainerPort))
			}
			all = append(all, h)
		}
	}
	return all
}

// podKey names an endpoint among those who have ports: the pod, or outside Kubernetes the container.
func podKey(e agentapi.Endpoint) cluster.Key {
	if e.Pod.Name != "" {
		return cluster.Key{Namespace: e.Pod.Namespace, Name: e.Pod.Name}
	}
	return cluster.Key{Name: podName(e)}
}

func protocolOf(name string) cluster.Protocol {
	for _, p := range []cluster.Protocol{cluster.UDP, cluster.SCTP} {
		if p.String() == name {
			return p
		}
	}
	return cluster.TCP
}

// checkPorts refuses a pod that asks for a port of this node which another pod or the agent itself has.
func (a *Agent) checkPorts(req agentapi.AddRequest) error {
	for _, wants := range req.PortMappings {
		if flag := a.config.flagOfPort(wants.Protocol, int(wants.HostPort)); flag != "" {
			return agentapi.Errorf(agentapi.CodePortTaken, "port %d/%s of node %s belongs to the network of the node itself (%s)", wants.HostPort, wants.Protocol, a.config.NodeName, flag)
		}
	}
	if a.services == nil {
		return nil
	}
	asking := podKey(agentapi.Endpoint{Attachment: req.Attachment, Pod: req.Pod})
	for _, e := range a.endpoints {
		if podKey(e) == asking {
			continue // the pod is made anew, and what was before is not gone yet
		}
		for _, has := range e.PortMappings {
			for _, wants := range req.PortMappings {
				if has.HostPort == wants.HostPort && has.Protocol == wants.Protocol && overlap(has.HostIP, wants.HostIP) {
					return agentapi.Errorf(agentapi.CodePortTaken, "port %d/%s of node %s belongs to pod %s", wants.HostPort, wants.Protocol, a.config.NodeName, podName(e))
				}
			}
		}
	}
	return nil
}

// overlap tells whether two hostIPs have an address in common.
func overlap(a, b netip.Addr) bool {
	switch {
	case !a.IsValid() || !b.IsValid() || a == b:
		return true
	case a.IsUnspecified() || b.IsUnspecified():
		return a.Is4() == b.Is4()
	}
	return false
}

// openPorts brings the ports of a new pod into the datapath.
func (a *Agent) openPorts(e agentapi.Endpoint) error {
	a.mu.Lock()
	a.services.setHostPorts(a.hostPorts())
	a.mu.Unlock()
	if err := a.services.pass(); err != nil && !onlyOfOthers(err, podKey(e)) {
		return fmt.Errorf("open ports of pod %s: %w", podName(e), err)
	}
	return nil
}

// onlyOfOthers tells whether an error of the table is about ports of others than this pod.
func onlyOfOthers(err error, pod cluster.Key) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !onlyOfOthers(err, pod) })
	}
	isOfPod := func(name service.PortName) bool { return name.IsHostPort() && name.Service == pod }
	var of *datapath.PortError
	var more *datapath.MorePortsError
	switch {
	case errors.As(err, &of):
		return !isOfPod(of.Port)
	case errors.As(err, &more):
		return !slices.ContainsFunc(more.Ports, isOfPod)
	}
	return false
}

// attachPrograms puts programs on devices and sockets. Where an earlier agent has left some that translate Services, but not the tables,
// these stay until the new tables are filled. Where there are none, nothing is lost by Services that come later.
func (a *Agent) attachPrograms(want desired) error {
	if err := a.missesServices(time.Now()); err != nil {
		return err
	}
	if a.policiesLost && !a.policies.current().filled {
		return errPoliciesMissing
	}
	return errors.Join(a.attach(want), a.attachSockets())
}

// servicesPatience is how long programs of an earlier agent stay for the sake of connections to Services: no pod is added meanwhile.
const servicesPatience = 5 * time.Minute

// missesServices says why programs of an earlier agent are not replaced yet, if they are not. A cluster that cannot be read for longer than
// its pods can wait takes from those that run what the old programs did for them; sockets keep theirs.
func (a *Agent) missesServices(now time.Time) error {
	if !a.servicesLost || a.services.current().filled {
		return nil
	}
	if until := a.started.Add(servicesPatience); now.Before(until) {
		return fmt.Errorf("%w; they are replaced without at %s", errServicesMissing, until.UTC().Format(time.TimeOnly))
	}
	a.servicesLost = false
	a.log.Warn("programs of an earlier agent are replaced although the cluster's Services are not known: connections that those translated break", "waited", servicesPatience)
	return nil
}

// attachSockets puts the programs on sockets once they know of Services.
func (a *Agent) attachSockets() error {
	if a.services != nil && !a.services.current().filled || a.socketsAttached {
		return nil
	}
	if err := a.datapath.AttachSockets(); err != nil {
		return err
	}
	a.socketsAttached = true
	return nil
}

// setHealthzProblem takes note of what became of listening at --healthz-address.
func (a *Agent) setHealthzProblem(err error) {
	problem := ""
	if err != nil {
		problem = fmt.Sprintf("load balancers that ask at --healthz-address %s get no answer from this node (does kube-proxy still run?): %v", a.config.HealthzAddress, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if problem != "" && problem != a.healthzProblem {
		a.log.Warn("problem", "problem", problem)
	}
	a.healthzProblem = problem
}

// eligible tells whether load balancers should send anything new to this node.
func (a *Agent) eligible() bool { return !a.leaving.Load() }
