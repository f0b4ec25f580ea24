package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/beeline-cni/beeline/internal/cluster"
)

const (
	// promptTime lets what was changed together become one snapshot, such as a Service and the slices of its endpoints, of which
	// two watches tell.
	promptTime = 2 * time.Millisecond
	// settleTime is the least between two snapshots while changes keep coming: each has everybody look at what it changes.
	settleTime = 50 * time.Millisecond
	// patience is how long a first snapshot waits for the nodes. When it ends an incomplete one is delivered, with
	// which whoever starts while there is no API server can go on with what it finds.
	patience = 3 * time.Second
)

// Source is the cluster.Source of an API server. It watches, and never polls; after a watch breaks it goes on where it was,
// or lists again if the server has forgotten where that is. While the server cannot be reached the last good state
// stays in force.
type Source struct {
	connection *connection
	nodeName   string
	log        *slog.Logger
	patience   time.Duration
	retry      func(attempt int) time.Duration

	// changed has room for one: something is to be delivered. ownChanged: this node's object is another.
	changed    chan struct{}
	ownChanged chan struct{}

	mu              sync.Mutex // guards what follows
	nodes           *nodes
	namespaces      *table[*cluster.Namespace]
	pods            *table[*cluster.Pod]
	services        *table[*cluster.Service]
	endpointSlices  *table[*cluster.EndpointSlice]
	networkPolicies *table[*cluster.NetworkPolicy]
	unknown         cluster.Kinds
	// since is when the oldest change that is not delivered was heard of; zero if there is none.
	since    time.Time
	failures failures
	// reachable is closed, and made anew, when the server answers again after an outage.
	reachable chan struct{}
	reported  []string
}

func newSource(c *connection, nodeName string, log *slog.Logger) *Source {
	return &Source{
		connection:      c,
		nodeName:        nodeName,
		log:             log,
		patience:        patience,
		retry:           backoff,
		changed:         make(chan struct{}, 1),
		ownChanged:      make(chan struct{}, 1),
		nodes:           &nodes{self: nodeName},
		namespaces:      newTable[*cluster.Namespace](),
		pods:            newTable[*cluster.Pod](),
		services:        newTable[*cluster.Service](),
		endpointSlices:  newTable[*cluster.EndpointSlice](),
		networkPolicies: newTable[*cluster.NetworkPolicy](),
		unknown:         slices.Clone(cluster.AllKinds),
		failures:        failures{host: c.host, of: map[string]failure{}},
		reachable:       make(chan struct{}),
	}
}

// section gives the section of a kind.
func (s *Source) section(kind cluster.Kind) section {
	switch kind {
	case cluster.KindNode:
		return s.nodes
	case cluster.KindNamespace:
		return s.namespaces
	case cluster.KindPod:
		return s.pods
	case cluster.KindService:
		return s.services
	case cluster.KindEndpointSlice:
		return s.endpointSlices
	default:
		return s.networkPolicies
	}
}

// Run delivers snapshots until ctx ends.
func (s *Source) Run(ctx context.Context, deliver func(*cluster.Snapshot)) error {
	// What the library has to say goes where everything goes, its debugging as debugging.
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(s.log.Handler()))
	var watchers sync.WaitGroup
	defer watchers.Wait()
	for _, r := range resources {
		w := &watcher{resource: r, client: s.connection.clients[r.group], answered: s.answered, pause: s.pause, reduce: s.reduce}
		watchers.Go(func() { w.follow(ctx, &store{s, r.kind}) })
	}
	waited := time.NewTimer(s.patience)
	defer waited.Stop()
	begun, unknown := false, 0
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-waited.C:
			begun = true
		case <-s.changed:
			if !sleep(ctx, settle(time.Since(last))) {
				return nil
			}
		}
		snapshot := s.snapshot()
		last = time.Now()
		s.report()
		if !begun && snapshot.Unknown.Has(cluster.KindNode) {
			continue
		}
		if !begun || len(snapshot.Unknown) != unknown {
			s.log.Info("cluster known", "nodes", len(snapshot.Nodes), "pods", snapshot.Pods.Len(), "unknown", snapshot.Unknown)
		}
		begun, unknown = true, len(snapshot.Unknown)
		deliver(snapshot)
	}
}

// settle is how long a change waits for others, so long after the last snapshot: the first one after a quiet time is not kept.
func settle(since time.Duration) time.Duration { return max(promptTime, settleTime-since) }

// snapshot gives the present state.
func (s *Source) snapshot() *cluster.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := &cluster.Snapshot{
		Namespaces:      s.namespaces.slice(),
		Pods:            s.pods.list(),
		Services:        s.services.slice(),
		EndpointSlices:  s.endpointSlices.list(),
		NetworkPolicies: s.networkPolicies.slice(),
		Unknown:         slices.Clone(s.unknown),
		Since:           s.since,
	}
	snapshot.Nodes, snapshot.Incomplete = s.nodes.settle()
	snapshot.Incomplete = snapshot.Incomplete || snapshot.Unknown.Has(cluster.KindNode)
	s.since = time.Time{}
	return snapshot
}

// change changes a section; whole says that all objects are known now.
func (s *Source) change(kind cluster.Kind, whole bool, how func(section) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ownBefore := s.nodes.own
	changed := how(s.section(kind))
	if s.nodes.own != ownBefore {
		wake(s.ownChanged)
	}
	if whole && s.unknown.Has(kind) {
		s.unknown = slices.DeleteFunc(s.unknown, func(k cluster.Kind) bool { return k == kind })
		changed = true
	}
	if !changed {
		return
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	wake(s.changed)
}

// wake fills a channel with room for one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// answered takes note of how a request went.
func (s *Source) answered(request string, err error) {
	s.mu.Lock()
	before := s.failures.unreachable()
	s.failures.note(request, err, time.Now())
	if now := s.failures.unreachable(); before && !now {
		close(s.reachable)
		s.reachable = make(chan struct{})
	}
	s.mu.Unlock()
	s.report()
}

// settled takes note that a request need not be made any more: that it was refused is no problem now.
func (s *Source) settled(request string) {
	s.mu.Lock()
	s.failures.settled(request)
	s.mu.Unlock()
	s.report()
}

// pause waits before a request that failed so many times is made again, less long if the server answers others
// meanwhile. It returns false when ctx ends.
func (s *Source) pause(ctx context.Context, failed int) bool {
	s.mu.Lock()
	reachable := s.reachable
	s.mu.Unlock()
	t := time.NewTimer(s.retry(failed))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-reachable:
	case <-t.C:
	}
	return true
}

// Problems are the complaints in force now: of objects that are wrong, and of a server that does not answer.
func (s *Source) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems()
}

func (s *Source) problems() []string {
	all := s.failures.sentences()
	for _, p := range s.objectProblems() {
		all = append(all, p.Text)
	}
	return all
}

// ObjectProblems are what is wrong with objects of the cluster: every node of the cluster sees these alike.
func (s *Source) ObjectProblems() []cluster.ObjectProblem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objectProblems()
}

func (s *Source) objectProblems() (all []cluster.ObjectProblem) {
	for _, kind := range cluster.AllKinds {
		instead := "; what it said before stays in force"
		if kind == cluster.KindNetworkPolicy {
			instead = "; the pods that it selects are closed"
		}
		wrong := s.section(kind).problems()
		for i, w := range wrong {
			p := cluster.ObjectProblem{Kind: kind, Key: w.key, UID: w.uid, Text: w.text}
			if w.stays {
				p.Text += instead
			}
			if i == problemsTold {
				p.Text = fmt.Sprintf("%d more objects of kind %s are wrong%s", len(wrong)-i, kind, instead)
				all = append(all, p)
				break
			}
			all = append(all, p)
		}
	}
	return all
}

// report logs problems that are new or gone.
func (s *Source) report() {
	s.mu.Lock()
	before, now := s.reported, s.problems()
	s.reported = now
	s.mu.Unlock()
	for _, p := range without(now, before) {
		s.log.Warn("problem with the cluster's state", "problem", p)
	}
	for _, p := range without(before, now) {
		s.log.Info("problem with the cluster's state gone", "problem", p)
	}
}

// without gives the sentences that are not among others, in their order.
func without(all, others []string) (rest []string) {
	if len(all) == 0 {
		return nil
	}
	known := make(map[string]bool, len(others))
	for _, p := range others {
		known[p] = true
	}
	for _, p := range all {
		if !known[p] {
			rest = append(rest, p)
		}
	}
	return rest
}

// problemsTold bounds the sentences about objects of one kind.
const problemsTold = 100

// Host names the server.
func (s *Source) Host() string { return s.connection.host }

// Outages is how often the API server stopped being reachable so far, and whether it is not now.
func (s *Source) Outages() (count int, now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures.outages, s.failures.unreachable()
}

// own is what the Reporter needs to know of this node's object; nil while there is none.
func (s *Source) own() *ownNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes.own
}

// setOwn takes what the answer to a patch says of this node's object, before the watch does: if the watch has told something
// since before, the answer may be the older of the two.
func (s *Source) setOwn(before, own *ownNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes.own == before {
		s.nodes.own = own
	}
}

// ReadyNodes are the names of the nodes that are ready, sorted.
func (s *Source) ReadyNodes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes.all.Ready()
}
