// Package endpoint has the life of endpoints: it makes them for ADD, removes them for DEL and GC and when their pod is
// gone, and takes over those of an earlier agent.
package endpoint

import (
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/bandwidth"
	"github.com/beeline-cni/beeline/internal/agent/conntrack"
	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/macvlan"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/ipam"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Options are what Endpoints depend on.
type Options struct {
	// Config and LB are the configurations of the node and of Services, MetricsAddress that of the agent's probes.
	Config         node.Config
	LB             lb.Config
	MetricsAddress string
	// Device is the kind of the devices of new pods; NoNetkit says why it cannot be netkit. DeviceOfPools is that of pods whose IPPool names
	// none; empty: Device.
	Device, DeviceOfPools device.Kind
	NoNetkit              error
	// StateDir has the directory of endpoint files.
	StateDir string
	// Routing is the active routing.
	Routing node.Routing
	// Lock guards the endpoints and what the agent knows of the node. Who holds it may write the tables, routes and
	// devices of pods: an ADD, DEL or GC those of its pods, a reconciliation all of them. A reconciliation holds it from
	// reading the endpoints to writing the tables, so it never removes what an ADD has just written.
	Lock sync.Locker
	// Pool has the addresses of the node's range, and those of IPPools that pods of this node have.
	Pool *ipam.Pool
	// IPPools has the addresses of IPPools.
	IPPools  IPPools
	Datapath Datapath
	// AttachForStack attaches what uplinks need for the first pod that goes through the kernel stack. The lock is held.
	AttachForStack func() error
	// LoadParent loads what AttachParent attaches, which takes half a second for the first time. The lock is not held.
	LoadParent func() error
	// AttachParent attaches what a device needs before it gets macvlan devices of pods. The lock is held.
	AttachParent func(name string, index int) error
	// Reconcile requests a reconciliation.
	Reconcile func()
	// Limits are the bandwidth limits of pods.
	Limits     *bandwidth.Limits
	FailClosed *failclosed.Pods
	Expiry     *conntrack.Expiry
	// Services is nil where the datapath does not translate Services.
	Services *lb.Services
	// Policies is nil where the datapath does not enforce NetworkPolicies.
	Policies *agentpolicy.Policies
	Log      *slog.Logger
}

// Datapath is what Endpoints use of the datapath.
type Datapath struct {
	Endpoints fwd.Endpoints
	Macvlans  macvlan.Table
	// Routes are for addresses of IPPools, which no range of the node contains.
	Routes fwd.Routes
	// ForgetConnections removes the conntrack entries of an address.
	ForgetConnections func(netip.Addr) error
	// Detach detaches the programs from a device, CheckPod checks that they are attached.
	Detach   func(device string) error
	CheckPod func(device string, index int) error
}

// Node is what a new endpoint needs to know of the node.
type Node struct {
	// NotReady is why no endpoint can be added; nil if one can.
	NotReady error
	// MTU is that of pods.
	MTU int
	// PoolUplink gives the uplink of an IPPool, IPPool the pool, nil if it does not exist.
	PoolUplink func(pool string) (netdev.Uplink, error)
	// RouteSource routes what a pod with this address of an IPPool sends by the routers of the pool; nil while none is known.
	RouteSource func(pool string, a netip.Addr) error
	IPPool      func(pool string) *cluster.IPPool
	// Own is this node, Uplink leads to the other nodes.
	Own    cluster.Node
	Uplink *netdev.Uplink
}

// Endpoints are the endpoints of one node. Add, Delete, GC, List, Check, Misses, Namespaces and PoolUplink take the lock; the
// caller of any other method holds it.
type Endpoints struct {
	Options
	store store
	node  Node
	// all are the endpoints by the name of their host device, which is derived from the CNI attachment.
	all map[string]agentapi.Endpoint
	// forgotten are endpoints whose pod seems to be gone without a DEL.
	forgotten forgotten
	// closedMacvlans says by host device which pods CloseMacvlans has closed, and which it has opened. A pod that an earlier agent closed is not in it before.
	closedMacvlans map[string]bool
}

// New takes over the endpoints of an earlier agent.
func New(o Options, n Node) (*Endpoints, error) {
	store, err := openStore(o.StateDir)
	if err != nil {
		return nil, err
	}
	e := &Endpoints{Options: o, store: store, node: n, all: map[string]agentapi.Endpoint{}, closedMacvlans: map[string]bool{}}
	return e, e.adopt()
}

// Update takes over a new state of the node.
func (e *Endpoints) Update(n Node) { e.node = n }

// Count is the number of endpoints.
func (e *Endpoints) Count() int { return len(e.all) }

// Has reports whether an endpoint has this host device.
func (e *Endpoints) Has(hostDevice string) bool {
	_, ok := e.all[hostDevice]
	return ok
}

// All gives the endpoints in no order.
func (e *Endpoints) All() iter.Seq[agentapi.Endpoint] { return maps.Values(e.all) }

// ThroughStack reports whether a pod goes through the kernel stack.
func (e *Endpoints) ThroughStack() bool {
	for _, p := range e.all {
		if p.ThroughStack != "" {
			return true
		}
	}
	return false
}

// Addresses are the addresses of all pods.
func (e *Endpoints) Addresses() (all []netip.Addr) {
	for _, p := range e.all {
		all = append(all, p.Addresses...)
	}
	return all
}

// PolicyPods are the pods in the form of NetworkPolicies.
func (e *Endpoints) PolicyPods() []policy.LocalPod {
	return agentpolicy.LocalPods(slices.Collect(e.All())...)
}

// FlowLocals are the pods in the form of flows.
func (e *Endpoints) FlowLocals() []flow.Local {
	pods := make([]flow.Local, 0, len(e.all))
	for _, p := range e.all {
		pods = append(pods, flow.Local{Pod: agentpolicy.LocalPod(p).Pod, Addresses: p.Addresses, Device: p.HostIfIndex})
	}
	return pods
}

// Namespaces are the network namespaces of the pods.
func (e *Endpoints) Namespaces() (all []string) {
	e.Lock.Lock()
	defer e.Lock.Unlock()
	for _, p := range e.all {
		if p.Netns != "" {
			all = append(all, p.Netns)
		}
	}
	return all
}

// Misses reports whether one of these devices is that of a pod without a DEL.
func (e *Endpoints) Misses(gone []int) bool {
	e.Lock.Lock() // waits for a DEL in progress
	defer e.Lock.Unlock()
	for _, p := range e.all {
		if slices.Contains(gone, p.HostIfIndex) {
			return true
		}
	}
	return false
}

// nextAdded gives the time of a new endpoint: now, and in any case after all existing ones, whose times may be from a
// clock that was set back since. Of pods with the same host port the newest has it.
func (e *Endpoints) nextAdded(now time.Time) time.Time {
	now = now.Round(0) // without the monotonic clock, which files do not have
	for _, p := range e.all {
		if !p.Added.Before(now) {
			now = p.Added.Add(1).Round(0)
		}
	}
	return now
}
