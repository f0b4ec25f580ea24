package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	objects "github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// member is a network in the rounds, with a testbed for each number of Services.
type member struct {
	network.Network
	byServices map[int]*level
	testbeds   []*suite.Testbed
}

// Testbeds are those of the network, the one with the fewest Services first.
func (m *member) Testbeds() []*suite.Testbed { return m.testbeds }

// Record describes the network for the result.
func (m *member) Record(ctx context.Context) result.Network { return m.testbeds[0].Record(ctx) }

// Sample runs one cell on the testbed with as many Services as it needs.
func (m *member) Sample(ctx context.Context, cell round.Cell, length time.Duration) result.Sample {
	count := servicesOf(cell)
	if m.Name() == stats.Baseline { // it has no Services: every number of them is the same
		count = 1
	}
	t := m.byServices[count]
	if t == nil {
		return round.Failed(round.NewSample(cell), fmt.Errorf("did not come up with %d Services", count))
	}
	return t.sample(ctx, cell, length)
}

// level is a network on a lab of its own with a number of Services, a client on the first node and a server on the
// second.
type level struct {
	*suite.Testbed
	proxy           network.Proxy // nil for the baseline
	count, backends int
	// targets are the Services of the server, which samples use in turn: where in a list of rules one stands is chance.
	targets []objects.Service
}

const (
	// mostTargets is how many Services have the server as their backend.
	mostTargets = 8
	// reachLimit is how long a network may take until the Services of a testbed work, and reachLimitEach what each of
	// them adds to that.
	reachLimit     = 30 * time.Second
	reachLimitEach = 30 * time.Millisecond
)

// open brings a network up once for each number of Services, the baseline without any. A network that does not come up
// with many Services is measured with the fewer ones.
func (s *Suite) open(ctx context.Context, n network.Network) (*member, error) {
	m := &member{Network: n, byServices: map[int]*level{}}
	levels := s.levels()
	if _, ok := n.(network.Proxy); !ok {
		levels = levels[:1]
	}
	for _, count := range levels {
		s.progress.Step("bringing up %s, number of Services: %d", n.Name(), count)
		t, err := s.openOne(ctx, n, count)
		switch {
		case err == nil:
			m.byServices[count], m.testbeds = t, append(m.testbeds, t.Testbed)
		case ctx.Err() != nil || count == levels[0]:
			for _, t := range m.testbeds {
				err = errors.Join(err, t.Close())
			}
			return nil, err
		default:
			s.progress.Note("%s does not come up with %d Services: %v", n.Name(), count, err)
		}
	}
	return m, nil
}

// openOne brings a network up with so many Services. After an error nothing of it is left.
func (s *Suite) openOne(ctx context.Context, n network.Network, count int) (t *level, err error) {
	t = &level{count: count}
	t.proxy, _ = n.(network.Proxy)
	t.backends = s.backendsBeside(t.proxy)
	t.Testbed, err = suite.Open(ctx, n, testbed.Options{Nodes: 2, MTU: s.MTU}, func(bed *suite.Testbed) error {
		t.Testbed = bed
		return t.fill(ctx, s.Cells)
	})
	return t, err
}

func (t *level) fill(ctx context.Context, cells []round.Cell) (err error) {
	if t.proxy != nil {
		filler := objects.Fill(t.count-t.targetCount(), t.backends, t.Lab.Nodes()) // it only adds to the number
		if err := t.ServeObjects(ctx, append(filler, policies.Namespace(policies.Default, nil))...); err != nil {
			return err
		}
	}
	if err := t.Up(ctx); err != nil {
		return err
	}
	if t.Client, err = t.addPod(ctx, 0, "client"); err != nil {
		return err
	}
	far, err := t.addPod(ctx, 1, "far")
	if err != nil {
		return err
	}
	t.Server[result.CrossNode] = far
	if err := t.Verify(ctx); err != nil {
		return err
	}
	if err := t.Serve(ctx, cells, suite.ServicePorts, false); err != nil {
		return err
	}
	if _, err := t.Listen(ctx, far, suite.EchoPort, 0); err != nil || t.proxy == nil {
		return err
	}
	if err := t.addTargets(); err != nil {
		return err
	}
	// Now that all objects exist, they are written at once, which may take kube-proxy long.
	if err := t.proxy.StartProxy(ctx, t.Lab); err != nil {
		return fmt.Errorf("start %s: %w", t.Name(), err)
	}
	return t.reach(ctx)
}

func (t *level) targetCount() int { return min(t.count, mostTargets) }

func (t *level) addPod(ctx context.Context, node int, name string) (*testbed.Pod, error) {
	pod, err := t.AddPod(ctx, node, policies.Pod{Namespace: policies.Default, Name: name})
	if err != nil {
		return nil, err
	}
	return pod, t.Prepare(pod.Netns, suite.ServiceReserved)
}

// addTargets adds the Services that lead to the servers.
func (t *level) addTargets() error {
	pod, p := t.Server[result.CrossNode], suite.ServicePorts
	ports := slices.Concat([]int{p.Netperf, p.Sockperf, p.Redis, suite.EchoPort}, p.HTTP, p.Data)
	var list []runtime.Object
	for i := range t.targetCount() {
		s := objects.Service{
			Name: fmt.Sprintf("target-%d", i), Address: objects.TargetAddress(i), Ports: ports,
			Backends: []objects.Backend{{Address: pod.Addresses[0], Node: pod.Node}},
		}
		t.targets = append(t.targets, s)
		list = append(list, s.Objects()...)
	}
	return t.API.Put(list...)
}

// reach waits until a connection through every target has arrived.
func (t *level) reach(ctx context.Context) (err error) {
	client, err := convergence.Start(t.Client.Netns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	limit := reachLimit + time.Duration(t.count)*reachLimitEach
	for _, s := range t.targets {
		if _, err := client.Reach(ctx, netip.AddrPortFrom(s.Address, suite.EchoPort), 0, limit); err != nil {
			return fmt.Errorf("reach Service %s of %s: %w", s.Name, t.Name(), err)
		}
	}
	return nil
}

// sample runs one cell, through a Service where the cell does.
func (t *level) sample(ctx context.Context, cell round.Cell, length time.Duration) result.Sample {
	servers := t.Servers[cell.Path]
	if _, through := cell.Workload.(workload.Through); through && t.proxy != nil {
		target := servers.Target()
		target.Address = t.targets[t.Turn%len(t.targets)].Address
		return t.Measure(ctx, cell, length, at{servers, target})
	}
	return t.Measure(ctx, cell, length, servers)
}

// at is a server under another address.
type at struct {
	*workload.Servers
	target workload.Target
}

func (a at) Target() workload.Target { return a.target }
