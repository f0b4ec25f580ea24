package ipclaim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ipclaim/memory"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// simulation is a cluster: an API server with pods and claims, and nodes with agents and pods' devices. It is one goroutine:
// what happens at the same time happens within a request to the store, so a seed repeats it.
type simulation struct {
	t     *testing.T
	rand  *rand.Rand
	store *memory.Store
	now   time.Time

	pods  map[cluster.Key]*cluster.Pod
	sets  map[cluster.Key]int // replicas
	nodes []*node
	pools *ippool.Set
	// late are requests whose answer was an error and that the server executes afterwards.
	late []func()
	// faults are on while the store may fail; depth is how many requests are in progress.
	faults bool
	depth  int
	uids   int
	trace  []string
}

// node is a machine.
type node struct {
	*simulation
	name string
	// registered says that its Node exists, up that the machine runs.
	registered, up bool
	agent          *Allocator
	watch          *memory.Watch
	// endpoints are the pods' devices, which outlive the agent.
	endpoints map[Attachment]*endpoint
	// crash is set while the agent is to die within the next request.
	crash bool
}

type endpoint struct {
	Live
	pod *cluster.Pod
	// doubtful says that it has outlived its Node.
	doubtful bool
}

func newSimulation(t *testing.T, seed uint64, nodes int) *simulation {
	w := &simulation{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), store: memory.New(), now: time.Unix(1e9, 0), faults: true,
		pods: map[cluster.Key]*cluster.Pod{}, sets: map[cluster.Key]int{},
	}
	w.pools = poolsOf(pool("a", 1, "192.0.2.1-192.0.2.8", "2001:db8::1-2001:db8::9"), pool("b", 2, "192.0.2.20-192.0.2.24"))
	for i := range nodes {
		n := &node{simulation: w, name: fmt.Sprint("node-", i), registered: true, up: true, endpoints: map[Attachment]*endpoint{}}
		w.nodes = append(w.nodes, n)
		n.start()
	}
	return w
}

// pool makes an IPPool of ranges; age 1 is the oldest.
func pool(name string, age int, ranges ...string) *cluster.IPPool {
	p := &cluster.IPPool{Name: name, Created: time.Unix(int64(age), 0)}
	for _, text := range ranges {
		r := netipx.MustParseIPRange(text)
		subnet := netip.PrefixFrom(r.From(), 24).Masked()
		if r.From().Is6() {
			subnet = netip.PrefixFrom(r.From(), 64).Masked()
		}
		if !slices.Contains(p.Subnets, subnet) {
			p.Subnets = append(p.Subnets, subnet)
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

func poolsOf(all ...*cluster.IPPool) *ippool.Set { return ippool.NewSet(all, nil, nil) }

func (w *simulation) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%*s", w.depth, "")+fmt.Sprintf(format, args...))
}

// Pod implements Facts.
func (w *simulation) Pod(_ context.Context, key cluster.Key) (*cluster.Pod, error) {
	if err := w.fault(); err != nil {
		return nil, err
	}
	return w.pods[key], nil
}

// NodeGone implements Facts.
func (w *simulation) NodeGone(_ context.Context, name string) (bool, error) {
	if err := w.fault(); err != nil {
		return false, err
	}
	return !w.node(name).registered, nil
}

// Ordinals implements Facts.
func (w *simulation) Ordinals(_ context.Context, key cluster.Key) (first, count int, err error) {
	return 0, w.sets[key], w.fault()
}

func (w *simulation) node(name string) *node {
	return w.nodes[slices.IndexFunc(w.nodes, func(n *node) bool { return n.name == name })]
}

var errFault = errors.New("the server fails")

// fault fails sometimes, and lets something else happen meanwhile.
func (w *simulation) fault() error {
	if !w.faults {
		return nil
	}
	if w.depth < 3 && w.rand.IntN(3) == 0 {
		w.step()
	}
	if w.rand.IntN(12) == 0 {
		return errFault
	}
	return nil
}

// start starts the agent of a node, which takes over its endpoints.
func (n *node) start() {
	var existing []Live
	for _, e := range n.endpoints {
		existing = append(existing, e.Live)
	}
	if n.watch != nil {
		n.watch.Close()
	}
	agent := New(Options{Node: n.name, Store: (*faulty)(n), Facts: n.simulation, Log: calmLog, Now: func() time.Time { return n.now }, Prober: (*faulty)(n)}, existing)
	agent.together = inTurn
	n.agent, n.watch, n.crash = agent, n.store.Watch(), false
	agent.SetPools(n.pools)
	n.watch.Deliver(agent, n.rand.IntN(3))
}

func inTurn(count int, do func(i int)) {
	for i := range count {
		do(i)
	}
}

// faulty is the store as one agent sees it.
type faulty node

// request executes a request to the store, or not, and answers, or not.
func request[T any](f *faulty, what string, do func() (T, error)) (none T, err error) {
	n := (*node)(f)
	agent := n.agent
	if err := n.fault(); err != nil {
		n.log("%s: %s fails before", n.name, what)
		return none, err
	}
	if n.agent != agent || !n.up {
		return none, errFault // it died meanwhile
	}
	if n.faults && n.rand.IntN(20) == 0 {
		n.log("%s: %s comes late", n.name, what)
		n.late = append(n.late, func() { _, _ = do() })
		return none, errFault
	}
	answer, err := do()
	n.log("%s: %s: %v", n.name, what, err)
	if n.faults && n.rand.IntN(15) == 0 {
		n.log("%s: the answer to %s is lost", n.name, what)
		return none, errFault
	}
	return answer, err
}

// Create implements Store.
func (f *faulty) Create(ctx context.Context, c *cluster.IPClaim) (*cluster.IPClaim, error) {
	return request(f, fmt.Sprintf("create %s for %s %s", c.Address, podOf(c), c.ContainerID), func() (*cluster.IPClaim, error) { return f.store.Create(ctx, c) })
}

// Update implements Store.
func (f *faulty) Update(ctx context.Context, c *cluster.IPClaim) (*cluster.IPClaim, error) {
	return request(f, fmt.Sprintf("update %s for %s %q", c.Address, podOf(c), c.ContainerID), func() (*cluster.IPClaim, error) { return f.store.Update(ctx, c) })
}

// Delete implements Store.
func (f *faulty) Delete(ctx context.Context, c *cluster.IPClaim) error {
	_, err := request(f, fmt.Sprintf("delete %s of %s", c.Address, podOf(c)), func() (int, error) { return 0, f.store.Delete(ctx, c) })
	return err
}

// Get implements Store.
func (f *faulty) Get(ctx context.Context, a netip.Addr) (*cluster.IPClaim, error) {
	return request(f, "get "+a.String(), func() (*cluster.IPClaim, error) { return f.store.Get(ctx, a) })
}

// Probe implements Prober: now and then another machine has the address.
func (f *faulty) Probe(context.Context, *ippool.Pool, netip.Addr) (string, error) {
	if !f.faults || f.rand.IntN(12) > 0 {
		return "", nil
	}
	return "another machine replied", f.simulation.fault()
}

// Follow implements Store: the simulation delivers.
func (f *faulty) Follow(context.Context, cluster.ClaimIndex) {}

var calmLog = slog.New(slog.DiscardHandler)
