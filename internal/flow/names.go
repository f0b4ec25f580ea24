package flow

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Owner is the owner of an address. It is immutable.
type Owner struct {
	Kind string // agentapi.FlowEndPod, FlowEndNode or FlowEndService
	cluster.Key
	// Node is the node of a pod.
	Node string
}

// Local is a pod of this node as its agent knows it: before the cluster reports its addresses, or without a cluster.
type Local struct {
	Pod       cluster.Key
	Addresses []netip.Addr
	// Device is the index of the host end of its device.
	Device int
}

// How long, and how many, names of deleted pods are kept: events about them arrive late, and queries later still. For
// existing pods, at most this many Owners are kept.
const (
	keptGone    = 10 * time.Minute
	keptGoneMax = 8192
	keptNamed   = 8192
)

// port is a frontend or an endpoint. The key has no pointers, because a large cluster has 150,000 of them.
type port struct {
	address  [16]byte // zero for a port of every node
	number   uint16
	protocol cluster.Protocol
}

func portAt(address netip.Addr, number uint16, protocol cluster.Protocol) port {
	return port{address.As16(), number, protocol}
}

// Names maps addresses and numbers to names. New state is handed over at once; the next Record takes it in and visits
// only what changed. Its methods are safe for concurrent use.
type Names struct {
	snapshot atomic.Pointer[cluster.Snapshot]

	mu      sync.Mutex
	node    string
	current *cluster.Snapshot // the snapshot taken in last
	// pods are the pods of the cluster by address, in a key without pointers. named are the Owners that have been
	// used.
	pods    map[[16]byte]*cluster.Pod
	named   map[*cluster.Pod]*Owner
	nodes   map[netip.Addr]*Owner
	locals  map[netip.Addr]*Owner
	devices map[int]*Owner
	// own is this node with its local addresses.
	own          *Owner
	ownAddresses []netip.Addr
	// frontends are Services by address and port, and by address alone.
	frontends map[port]*Owner
	// endpoints are the Services of each endpoint. The lists are immutable and shared by the endpoints of one
	// EndpointSlice.
	endpoints map[port]*[]cluster.Key
	policies  map[policy.Policy]string
	// kept are the names of deleted pods; gone is the same in order of deletion.
	kept map[netip.Addr]*Owner
	gone []departed
}

// departed is an address whose pod was deleted.
type departed struct {
	address netip.Addr
	owner   *Owner
	at      time.Time
}

// NewNames makes names for the agent of this node.
func NewNames(node string) *Names {
	return &Names{
		node:      node,
		current:   &cluster.Snapshot{},
		pods:      map[[16]byte]*cluster.Pod{},
		named:     map[*cluster.Pod]*Owner{},
		kept:      map[netip.Addr]*Owner{},
		nodes:     map[netip.Addr]*Owner{},
		frontends: map[port]*Owner{},
		endpoints: map[port]*[]cluster.Key{},
		policies:  map[policy.Policy]string{},
		own:       &Owner{agentapi.FlowEndNode, cluster.Key{Name: node}, node},
	}
}

// Deliver hands over a snapshot. It does not block.
func (n *Names) Deliver(s *cluster.Snapshot) { n.snapshot.Store(s) }

// SetLocals sets the pods of this node.
func (n *Names) SetLocals(all []Local) {
	locals, devices := make(map[netip.Addr]*Owner, len(all)), make(map[int]*Owner, len(all))
	for _, l := range all {
		owner := &Owner{agentapi.FlowEndPod, l.Pod, n.node}
		devices[l.Device] = owner
		for _, a := range l.Addresses {
			locals[a] = owner
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for address, owner := range n.locals {
		if locals[address] == nil && n.pods[address.As16()] == nil && n.kept[address] == nil {
			n.depart(address, owner, time.Now())
		}
	}
	n.locals, n.devices = locals, devices
}

// SetAddresses sets the sorted addresses of this node, which may be more than its Node has. The slice must not change
// afterwards.
func (n *Names) SetAddresses(all []netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ownAddresses = all
}

// SetPolicies sets the names of policies by number. Removed ones keep their names: a number is derived from its
// policy.
func (n *Names) SetPolicies(names map[policy.Policy]cluster.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.policies) > len(names)+keptGoneMax {
		clear(n.policies)
	}
	for number, key := range names {
		if _, ok := n.policies[number]; !ok {
			n.policies[number] = key.String()
		}
	}
}

// Record adds names to an event.
func (n *Names) Record(e Event) Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.update(e.Time)
	r := Record{Event: e, From: n.end(e.Source, e.Protocol), To: n.end(e.Destination, e.Protocol), Device: n.devices[e.Device]}
	if e.Egress != 0 {
		r.EgressPolicy = n.policy(e.Egress)
	}
	if e.Ingress != 0 {
		r.IngressPolicy = n.policy(e.Ingress)
	}
	return r
}

func (n *Names) policy(number policy.Policy) string {
	name, ok := n.policies[number]
	if !ok {
		return fmt.Sprintf("policy %d", number)
	}
	return name
}

// end gives the owner of an address and a port.
func (n *Names) end(at netip.AddrPort, protocol uint8) End {
	a := at.Addr()
	where := portAt(a, at.Port(), cluster.Protocol(protocol))
	if owner := n.pod(a); owner != nil {
		return End{owner, n.servicesOf(where)}
	}
	if owner := cmp.Or(n.frontends[where], n.frontends[portAt(a, 0, 0)]); owner != nil {
		return End{Owner: owner}
	}
	owner := n.nodes[a]
	if _, found := slices.BinarySearchFunc(n.ownAddresses, a, netip.Addr.Compare); found {
		owner = n.own
	}
	if owner != nil {
		if s := n.frontends[port{number: where.number, protocol: where.protocol}]; s != nil {
			return End{owner, []cluster.Key{s.Key}}
		}
	}
	return End{owner, n.servicesOf(where)}
}

// pod gives the pod that has an address, or had it last.
func (n *Names) pod(a netip.Addr) *Owner {
	if owner := n.locals[a]; owner != nil {
		return owner
	}
	if p := n.pods[a.As16()]; p != nil {
		return n.ownerOf(p)
	}
	return n.kept[a]
}

// ownerOf gives the Owner of a pod, usually the same each time. Owners are made on demand, because most pods are
// never looked up.
func (n *Names) ownerOf(p *cluster.Pod) *Owner {
	owner := n.named[p]
	if owner == nil {
		if len(n.named) >= keptNamed {
			clear(n.named)
		}
		owner = &Owner{agentapi.FlowEndPod, p.Key(), p.Node}
		n.named[p] = owner
	}
	return owner
}

// servicesOf gives the Services of an endpoint.
func (n *Names) servicesOf(where port) []cluster.Key {
	if all := n.endpoints[where]; all != nil {
		return *all
	}
	return nil
}

// update takes in the newest snapshot.
func (n *Names) update(now time.Time) {
	defer n.forget(now)
	s, old := n.snapshot.Load(), n.current
	if s == nil || s == old {
		return
	}
	if !cluster.Same(old.Nodes, s.Nodes) {
		clear(n.nodes)
		for _, node := range s.Nodes {
			owner := &Owner{agentapi.FlowEndNode, cluster.Key{Name: node.Name}, node.Name}
			for _, a := range slices.Concat(node.Addresses, node.ExternalIPs) {
				n.nodes[a] = owner
			}
		}
	}
	differ(old.Pods, s.Pods, func(p *cluster.Pod) { n.removePod(p, now) }, n.addPod)
	differ(cluster.ListOf(old.Services...), cluster.ListOf(s.Services...), n.removeService, n.addService)
	differ(old.EndpointSlices, s.EndpointSlices, n.removeEndpoints, n.addEndpoints)
	n.current = s
}

// differ reports removed objects, then added ones. A changed object is removed and added.
func differ[T cluster.Object](old, now cluster.List[T], gone, come func(T)) {
	var none T
	var added []T
	cluster.Differences(old, now, func(before, after T) {
		if before != none {
			gone(before)
		}
		if after != none {
			added = append(added, after)
		}
	})
	for _, t := range added {
		come(t)
	}
}

// own reports whether a pod has addresses of its own.
func own(p *cluster.Pod) bool { return !p.HostNetwork && !p.Ended }

func (n *Names) addPod(p *cluster.Pod) {
	if !own(p) {
		return
	}
	for _, a := range p.Addresses {
		n.pods[a.As16()] = p
	}
}

func (n *Names) removePod(p *cluster.Pod, now time.Time) {
	for _, a := range p.Addresses {
		if n.pods[a.As16()] == p {
			delete(n.pods, a.As16())
			n.depart(a, n.ownerOf(p), now)
		}
	}
	delete(n.named, p)
}

// depart keeps the name of a deleted pod for a while.
func (n *Names) depart(a netip.Addr, owner *Owner, now time.Time) {
	n.kept[a] = owner
	n.gone = append(n.gone, departed{a, owner, now})
}

// forget drops names that were kept long enough, unless the address has another owner since.
func (n *Names) forget(now time.Time) {
	i := 0
	for ; i < len(n.gone) && (len(n.gone)-i > keptGoneMax || now.Sub(n.gone[i].at) > keptGone); i++ {
		if d := n.gone[i]; n.kept[d.address] == d.owner {
			delete(n.kept, d.address)
		}
	}
	n.gone = n.gone[i:]
}

// frontendsOf gives the addresses and ports of a Service, and its cluster IPs without a port.
func frontendsOf(s *cluster.Service, each func(port)) {
	for _, a := range s.ClusterIPs {
		each(portAt(a, 0, 0))
	}
	for _, p := range s.Ports {
		for _, a := range slices.Concat(s.ClusterIPs, s.ExternalIPs, s.LoadBalancerIPs) {
			each(portAt(a, p.Number, p.Protocol))
		}
		if p.NodePort != 0 {
			each(port{number: p.NodePort, protocol: p.Protocol})
		}
	}
}

func (n *Names) addService(s *cluster.Service) {
	owner := &Owner{Kind: agentapi.FlowEndService, Key: s.Key()}
	frontendsOf(s, func(p port) { n.frontends[p] = owner })
}

func (n *Names) removeService(s *cluster.Service) {
	frontendsOf(s, func(p port) {
		if owner := n.frontends[p]; owner != nil && owner.Key == s.Key() {
			delete(n.frontends, p)
		}
	})
}

func (n *Names) addEndpoints(s *cluster.EndpointSlice) {
	service := cluster.Key{Namespace: s.Namespace, Name: s.Service}
	n.changeEndpoints(s, func(before []cluster.Key) []cluster.Key {
		if slices.Contains(before, service) {
			return before
		}
		all := append(slices.Clone(before), service)
		slices.SortFunc(all, cluster.Key.Compare)
		return all
	})
}

func (n *Names) removeEndpoints(s *cluster.EndpointSlice) {
	service := cluster.Key{Namespace: s.Namespace, Name: s.Service}
	n.changeEndpoints(s, func(before []cluster.Key) []cluster.Key {
		return slices.DeleteFunc(slices.Clone(before), func(k cluster.Key) bool { return k == service })
	})
}

// changeEndpoints changes the Services of a slice's endpoints. Endpoints that shared one list share one afterwards.
func (n *Names) changeEndpoints(s *cluster.EndpointSlice, change func([]cluster.Key) []cluster.Key) {
	changed := map[*[]cluster.Key]*[]cluster.Key{}
	for _, p := range s.Ports {
		for _, e := range s.Endpoints {
			where := portAt(e.Address, p.Number, p.Protocol)
			before := n.endpoints[where]
			now, known := changed[before]
			if !known {
				all := change(n.servicesOf(where))
				now = &all
				changed[before] = now
				changed[now] = now // an endpoint may be listed twice
			}
			if len(*now) == 0 {
				delete(n.endpoints, where)
			} else {
				n.endpoints[where] = now
			}
		}
	}
}
