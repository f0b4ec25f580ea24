package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/beeline-cni/beeline/internal/cluster"
)

const (
	// promptTime coalesces changes that belong together into one snapshot, such as a Service and its EndpointSlices,
	// which come from two watches.
	promptTime = 2 * time.Millisecond
	// coalesceTime is the least time between two snapshots while changes keep coming: each snapshot makes all readers
	// look for changes.
	coalesceTime = 50 * time.Millisecond
	// patience is how long the first snapshot waits for the nodes. Then Run delivers an incomplete one, so that an
	// agent that starts without an API server continues with the state it recovers.
	patience = 3 * time.Second
)

// Source is the cluster.Source of an API server. It watches and never polls. A broken watch resumes where it was, or
// lists again if the server no longer has that version. While the server is unreachable the last valid state remains.
type Source struct {
	connection *connection
	nodeName   string
	log        *slog.Logger
	patience   time.Duration
	retry      func(attempt int) time.Duration

	// changed has capacity 1: a snapshot is due. ownChanged: this node's object has changed.
	changed    chan struct{}
	ownChanged chan struct{}

	mu sync.Mutex // guards the fields below
	// sections are the following ones by kind.
	sections        map[cluster.Kind]section
	nodes           *nodes
	namespaces      *table[*cluster.Namespace]
	pods            *table[*cluster.Pod]
	services        *table[*cluster.Service]
	endpointSlices  *table[*cluster.EndpointSlice]
	networkPolicies *table[*cluster.NetworkPolicy]
	ipPools         *table[*cluster.IPPool]
	unknown         cluster.Kinds
	// since is the time of the oldest change that is not delivered; zero if there is none.
	since    time.Time
	failures failures
	// reachable is closed, and made anew, when the server responds again after an outage.
	reachable chan struct{}
	reported  []string
}

func newSource(c *connection, nodeName string, log *slog.Logger) *Source {
	s := &Source{
		connection:      c,
		nodeName:        nodeName,
		log:             log,
		patience:        patience,
		retry:           backoff,
		changed:         make(chan struct{}, 1),
		ownChanged:      make(chan struct{}, 1),
		nodes:           newNodes(nodeName),
		namespaces:      newTable[*cluster.Namespace](cluster.KindNamespace),
		pods:            newTable[*cluster.Pod](cluster.KindPod),
		services:        newTable[*cluster.Service](cluster.KindService),
		endpointSlices:  newTable[*cluster.EndpointSlice](cluster.KindEndpointSlice),
		networkPolicies: newTable[*cluster.NetworkPolicy](cluster.KindNetworkPolicy),
		ipPools:         newTable[*cluster.IPPool](cluster.KindIPPool),
		unknown:         slices.Clone(cluster.AllKinds),
		failures:        failures{host: c.host, of: map[string]failure{}},
		reachable:       make(chan struct{}),
	}
	s.sections = map[cluster.Kind]section{
		cluster.KindNode: s.nodes, cluster.KindNamespace: s.namespaces, cluster.KindPod: s.pods, cluster.KindService: s.services,
		cluster.KindEndpointSlice: s.endpointSlices, cluster.KindNetworkPolicy: s.networkPolicies, cluster.KindIPPool: s.ipPools,
	}
	return s
}

// Run delivers snapshots until ctx ends.
func (s *Source) Run(ctx context.Context, deliver func(*cluster.Snapshot)) error {
	// The library logs to the same handler, its debug messages as debug.
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(s.log.Handler()))
	var watchers sync.WaitGroup
	defer watchers.Wait()
	for _, r := range resources {
		w := &watcher{r, s.connection.clients[r.group], s, func(full runtime.Object) (runtime.Object, error) { return s.reduce(full) }}
		watchers.Go(func() { w.follow(ctx, &store{s, r.kind}) })
	}
	waited := time.After(s.patience)
	begun, unknown := false, 0
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-waited:
			begun = true
		case <-s.changed:
			if !sleep(ctx, coalesce(time.Since(last))) {
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
			s.log.Info("cluster synced", "nodes", len(snapshot.Nodes), "pods", snapshot.Pods.Len(), "unknown", snapshot.Unknown)
		}
		begun, unknown = true, len(snapshot.Unknown)
		deliver(snapshot)
	}
}

// coalesce is how long a change waits for others, given the time since the last snapshot. The first change after a
// quiet time is delivered promptly.
func coalesce(since time.Duration) time.Duration { return max(promptTime, coalesceTime-since) }

// snapshot makes a snapshot of the current state.
func (s *Source) snapshot() *cluster.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := &cluster.Snapshot{
		Namespaces:      s.namespaces.slice(),
		Pods:            s.pods.list(),
		Services:        s.services.slice(),
		EndpointSlices:  s.endpointSlices.list(),
		NetworkPolicies: s.networkPolicies.slice(),
		IPPools:         s.ipPools.slice(),
		Unknown:         slices.Clone(s.unknown),
		Since:           s.since,
	}
	snapshot.Nodes, snapshot.Incomplete = s.nodes.resolve()
	snapshot.Incomplete = snapshot.Incomplete || snapshot.Unknown.Has(cluster.KindNode)
	s.since = time.Time{}
	return snapshot
}

// change changes a section; whole says that all objects are listed now.
func (s *Source) change(kind cluster.Kind, whole bool, how func(section) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ownBefore := s.nodes.own
	changed := how(s.sections[kind])
	if s.nodes.own != ownBefore {
		wake(s.ownChanged)
	}
	if whole && s.unknown.Has(kind) {
		s.unknown = slices.DeleteFunc(s.unknown, func(k cluster.Kind) bool { return k == kind })
		changed = true
		if kind == cluster.KindNode {
			s.nodes.doubtful = s.nodes.keys() // resolve removes the valid ones
		}
	}
	if !changed {
		return
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	wake(s.changed)
}

// wake signals a channel of capacity 1.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// answered records the result of a request.
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

// clear forgets the failure of a request that is no longer needed.
func (s *Source) clear(request string) {
	s.mu.Lock()
	delete(s.failures.of, request)
	s.mu.Unlock()
	s.report()
}

// pause waits before a failed request is repeated; the wait is shorter if the server responds to others meanwhile. It
// returns false when ctx ends.
func (s *Source) pause(ctx context.Context, failed int) bool {
	s.mu.Lock()
	reachable := s.reachable
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return false
	case <-reachable:
	case <-time.After(s.retry(failed)):
	}
	return true
}

// Problems are the current problems: wrong objects, and an unreachable server.
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

// ObjectProblems are what is wrong with objects of the cluster. All nodes see the same.
func (s *Source) ObjectProblems() []cluster.ObjectProblem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objectProblems()
}

func (s *Source) objectProblems() (all []cluster.ObjectProblem) {
	for _, kind := range cluster.AllKinds {
		wrong := s.sections[kind].problems()
		if more := len(wrong) - problemsMax; more > 0 {
			wrong[problemsMax].Text = fmt.Sprintf("%d more objects of kind %s are wrong", more, kind)
			wrong = wrong[:problemsMax+1]
		}
		all = append(all, wrong...)
	}
	return all
}

// report logs problems that appeared or ended.
func (s *Source) report() {
	s.mu.Lock()
	before, now := s.reported, s.problems()
	s.reported = now
	s.mu.Unlock()
	cluster.LogProblems(s.log, before, now)
}

// problemsMax bounds the problems that are listed for objects of one kind.
const problemsMax = 100

// Host names the server.
func (s *Source) Host() string { return s.connection.host }

// Outages gives how often the API server became unreachable, and whether it is unreachable now.
func (s *Source) Outages() (count int, now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures.outages, s.failures.unreachable()
}

// own is what the Reporter needs of this node's object; nil while there is none.
func (s *Source) own() *ownNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes.own
}

// setOwn takes this node's object from the response to a patch, before the watch delivers it. If the watch has
// delivered a change since before, the response may be older and is ignored.
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
	return s.nodes.ready()
}
