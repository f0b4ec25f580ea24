// Package ippools gives pods addresses of the cluster's IPPools.
package ippools

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/agent/status"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/ipclaim"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// Server is the API server. Without one, claims are files.
type Server interface {
	ipclaim.Store
	ipclaim.Facts
	// WriteStatus writes the status of an IPPool.
	WriteStatus(ctx context.Context, status cluster.IPPoolStatus) error
}

// Options are what Pools depend on.
type Options struct {
	// Node is the name of this node.
	Node string
	// StateDir is where the agent remembers whether the cluster has pools.
	StateDir string
	// Server is nil without an API server.
	Server Server
	// Files keeps claims where there is no Server.
	Files interface {
		ipclaim.Store
		ipclaim.Facts
	}
	// Ready gives the names of the ready nodes; nil without an API server.
	Ready func() []string
	// Uplink gives this node's device in the network of an IPPool; nil if no address is probed.
	Uplink func(pool string) (netdev.Uplink, bool)
	Log    *slog.Logger
}

// Pools gives pods of this node addresses of IPPools. It is safe for concurrent use.
type Pools struct {
	Options
	allocator *ipclaim.Allocator

	mu       sync.Mutex
	snapshot *cluster.Snapshot
	set      *ippool.Set
	// services are the addresses of Services in subnets of pools.
	services []netip.Addr
	// needed is closed when there is a pool, or a pod with an address of one: before, nothing is watched.
	needed chan struct{}
	// remoteChanged has capacity 1: addresses of other nodes' pods have changed.
	remoteChanged chan struct{}
	// had exists while the cluster has pools.
	had marker
	// pods are those of ADDs in progress that no snapshot had.
	pods podCache
}

// New makes Pools that know of no snapshot yet.
func New(o Options) *Pools {
	p := &Pools{Options: o, set: &ippool.Set{}, needed: make(chan struct{}), remoteChanged: make(chan struct{}, 1), had: marker(filepath.Join(o.StateDir, "ippools"))}
	options := ipclaim.Options{RemoteChanged: p.notifyRemoteChanged, Node: o.Node, Log: o.Log, MayBeGone: p.mayBeGone, PoolsKnown: func() bool { return p.known() == nil }}
	if o.Server != nil {
		options.Store, options.Facts = o.Server, o.Server
	} else {
		options.Store, options.Facts = o.Files, o.Files
	}
	options.Elected = p.elected
	if o.Uplink != nil {
		options.Prober = prober(o.Uplink)
	}
	p.allocator = ipclaim.New(options, nil)
	return p
}

func (p *Pools) notifyRemoteChanged() {
	select {
	case p.remoteChanged <- struct{}{}:
	default:
	}
}

// Remote gives the addresses of IPPools that pods of other nodes have, by the name of the node.
func (p *Pools) Remote() map[string][]netip.Addr { return p.allocator.Remote() }

// Complete reports whether Remote is complete: the claims of the cluster are known, or there is no IPPool.
func (p *Pools) Complete() bool {
	if p.known() != nil {
		return false
	}
	s, _ := p.current()
	return len(s.IPPools) == 0 || p.allocator.Synced()
}

// RemoteChanged requests to read Remote again.
func (p *Pools) RemoteChanged() <-chan struct{} { return p.remoteChanged }

// elected reports whether this node has a duty that one node does for all.
func (p *Pools) elected(duty cluster.Key) bool {
	return p.Ready == nil || status.Elected(p.Node, p.Ready(), cluster.KindIPPool, duty)
}

// mayBeGone reports whether a node seems to be gone.
func (p *Pools) mayBeGone(name string) bool {
	s, _ := p.current()
	if p.Server == nil || s == nil || s.Incomplete {
		return false
	}
	node, found := s.Node(name)
	return !found || node.OutOfService
}

func (p *Pools) current() (*cluster.Snapshot, *ippool.Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapshot, p.set
}

// Update takes over a new snapshot.
func (p *Pools) Update(s *cluster.Snapshot) {
	p.mu.Lock()
	before := p.snapshot
	p.snapshot = s
	services := p.services
	if before == nil || !cluster.Same(before.IPPools, s.IPPools) || !cluster.Same(before.Services, s.Services) {
		services = serviceAddresses(s)
	}
	changed := before == nil || !slices.Equal(services, p.services) || !cluster.Same(before.IPPools, s.IPPools) ||
		len(s.IPPools) > 0 && (!cluster.Same(before.Nodes, s.Nodes) || !cluster.Same(before.Namespaces, s.Namespaces))
	if changed {
		p.services = services
		p.set = ippool.NewSet(s.IPPools, s.Nodes, s.Namespaces, services...)
	}
	set := p.set
	if len(s.IPPools) > 0 {
		p.need()
	}
	has := len(s.IPPools) > 0
	if !s.Unknown.Has(cluster.KindIPPool) && (before == nil || before.Unknown.Has(cluster.KindIPPool) || len(before.IPPools) > 0 != has) {
		if err := p.had.set(has); err != nil {
			p.Log.Error("remember whether the cluster has IPPools", "error", err)
		}
	}
	p.mu.Unlock()
	if changed {
		p.allocator.SetPools(set)
	}
}

// need says that claims have to be known. The lock is held.
func (p *Pools) need() {
	select {
	case <-p.needed:
	default:
		close(p.needed)
	}
}

// errNotSynced says that the pools are not known.
var errNotSynced = agentapi.Errorf(agentapi.CodeNotReady, "the IPPools of the cluster are not synced yet")

// known is nil if all pools are known. An agent that starts without its API server goes on without pools if the cluster had none.
func (p *Pools) known() error {
	s, _ := p.current()
	switch {
	case s == nil:
		return errNotSynced
	case !s.Unknown.Has(cluster.KindIPPool) && !s.Partial.Has(cluster.KindIPPool), s.Incomplete && !p.had.exists():
		return nil
	default:
		return errNotSynced
	}
}

// Adopt takes over an endpoint of an earlier agent.
func (p *Pools) Adopt(e agentapi.Endpoint) {
	if e.Pool == "" && e.ContainerID != "" {
		return
	}
	p.allocator.Adopt(ipclaim.Live{
		Attachment: ipclaim.Attachment(e.Attachment), Pool: e.Pool, Addresses: e.Addresses,
		Request: ipclaim.Request{Namespace: e.Pod.Namespace, Pod: e.Pod.Name, PodUID: e.Pod.UID, StatefulSet: e.StatefulSet},
	})
	if e.Pool != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.need()
	}
}

// syncPatience is how long an ADD waits for the claims: less than the plugin waits for the agent.
const syncPatience = 3 * time.Second

// Allocate gives a new endpoint addresses of a pool, or none if its pod has an address of the node's range. The caller
// calls Commit or Abandon.
func (p *Pools) Allocate(ctx context.Context, req *agentapi.AddRequest) error {
	e := &req.Endpoint
	defer p.pods.forget(e.Pod.UID)
	pools, pod, err := p.choose(ctx, e.Pod, req.IPPool, false)
	if err != nil || len(pools) == 0 {
		return err
	}
	if e.Macvlan != nil {
		pools = slices.DeleteFunc(slices.Clone(pools), func(other *ippool.Pool) bool { return !other.SameLink(pools[0].IPPool) })
	}
	// The first pool makes the agent read the claims. A runtime that is told to try again waits for longer.
	synced, cancel := context.WithTimeout(ctx, syncPatience)
	defer cancel()
	p.allocator.WaitSynced(synced)
	r := ipclaim.Request{Namespace: e.Pod.Namespace, Pod: e.Pod.Name, PodUID: e.Pod.UID, StatefulSet: pod.StatefulSet, Pools: pools}
	got, err := p.allocator.Allocate(ctx, ipclaim.Attachment(e.Attachment), r)
	if err != nil {
		return allocationError(err)
	}
	e.Pool, e.Addresses, e.StatefulSet, e.Networks = got.Pool.Name, got.Addresses, pod.StatefulSet, networksOf(got.Pool)
	return nil
}

// networksOf gives what a pool's interfaces lead to.
func networksOf(p *ippool.Pool) []netip.Prefix {
	all := slices.Clone(p.Subnets)
	for _, r := range p.Routes {
		all = append(all, r.To)
	}
	return all
}

// allocationError tells the plugin whether waiting helps.
func allocationError(err error) error {
	var exhausted *ippool.ExhaustedError
	var inUse *ipclaim.InUseError
	switch {
	case errors.As(err, &inUse), errors.Is(err, ipclaim.ErrNotSynced):
		return agentapi.Errorf(agentapi.CodeNotReady, "%v", err)
	case errors.As(err, &exhausted):
		return agentapi.Errorf(agentapi.CodePoolExhausted, "%v", err)
	case errors.Is(err, ipclaim.ErrHeld):
		return agentapi.Errorf(agentapi.CodeConflict, "%v", err)
	}
	return err
}

// Commit says that an endpoint exists. It is an error if Release came before.
func (p *Pools) Commit(a agentapi.Attachment) error { return p.allocator.Commit(ipclaim.Attachment(a)) }

// Abandon says that the ADD has failed after Allocate. It does not block.
func (p *Pools) Abandon(a agentapi.Attachment) { p.allocator.Abandon(ipclaim.Attachment(a)) }

// Release says that an endpoint is gone. It does not block.
func (p *Pools) Release(a agentapi.Attachment) {
	select {
	case <-p.needed:
		p.allocator.Release(ipclaim.Attachment(a))
	default: // no pod has an address of a pool
	}
}

// choose gives the pools of a pod, none for the node's range, and the pod; nil if it could not be read and there are no
// pools. named are the pools of the network configuration. ask says whether to ask the server for it in any case.
func (p *Pools) choose(ctx context.Context, ref agentapi.PodRef, named string, ask bool) ([]*ippool.Pool, *cluster.Pod, error) {
	if err := p.known(); err != nil {
		return nil, nil, err
	}
	s, set := p.current()
	pod, err := p.pod(ctx, s, ref, ask || len(s.IPPools) > 0)
	switch {
	case err != nil || pod == nil && named == "":
		return nil, nil, err
	case pod == nil: // an error: there is no such pool
		pod = &cluster.Pod{Namespace: ref.Namespace, Name: ref.Name}
	}
	own, _ := s.Node(p.Node)
	of := ippool.Pod{Labels: pod.Labels, IPPools: pod.IPPools, Network: named, NodeLabels: own.Labels}
	of.NamespaceLabels = cluster.NewLabels(map[string]string{corev1.LabelMetadataName: ref.Namespace})
	at, found := slices.BinarySearchFunc(s.Namespaces, ref.Namespace, func(n *cluster.Namespace, name string) int { return strings.Compare(n.Name, name) })
	switch {
	case found:
		of.NamespaceLabels, of.NamespaceIPPools = s.Namespaces[at].Labels, s.Namespaces[at].IPPools
	case p.Server != nil && len(s.IPPools) > 0 && ref.Namespace != "":
		return nil, nil, agentapi.Errorf(agentapi.CodeNotReady, "namespace %s is not synced yet: its labels decide about the IPPool of the pod", ref.Namespace)
	}
	pools, err := set.Choose(of)
	if err != nil {
		return nil, nil, agentapi.Errorf(agentapi.CodeNoPool, "choose the IPPool of pod %s/%s: %v", ref.Namespace, ref.Name, err)
	}
	return pools, pod, nil
}

// Lost gives the attachments whose addresses other pods have, with a sentence on one of them.
func (p *Pools) Lost() map[agentapi.Attachment]string {
	all := map[agentapi.Attachment]string{}
	for _, l := range p.allocator.Lost() {
		all[agentapi.Attachment(l.Attachment)] = l.Reason
	}
	return all
}

// Problems are the sentences for `beeline status`.
func (p *Pools) Problems() (all []string) {
	for _, l := range p.allocator.Lost() {
		all = append(all, l.Reason)
	}
	if p.Server != nil {
		return all // each pool's status says what is wrong with it
	}
	_, set := p.current()
	for _, pool := range set.Pools {
		for _, overlap := range pool.Overlaps {
			all = append(all, fmt.Sprintf("IPPool %s: %s", pool.Name, overlap))
		}
	}
	return all
}

// Run allocates, releases and reports until ctx ends.
func (p *Pools) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.needed:
	}
	var reporter sync.WaitGroup
	defer reporter.Wait()
	if p.Server != nil {
		reporter.Go(func() { p.report(ctx) })
	}
	return p.allocator.Run(ctx)
}
