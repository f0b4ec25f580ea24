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
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// member is a network brought up on a lab of its own with a number of Services, a client on the first node and a server
// on the second.
type member struct {
	*suite.Testbed
	proxy    network.Proxy // nil for the baseline
	services int
	backends int
	// targets are the Services of the server, which samples use in turn: where in a list of rules one stands is chance.
	targets []services.Service
}

const (
	// mostTargets is how many Services have the server as their backend.
	mostTargets = 8
	// reachLimit is how long a network may take until the Services of a testbed work, and reachLimitEach what each of
	// them adds to that.
	reachLimit     = 30 * time.Second
	reachLimitEach = 30 * time.Millisecond
)

// open brings a network up with so many Services; proxy is nil for the baseline. After an error nothing of it is left.
func (s *Suite) open(ctx context.Context, n network.Network, proxy network.Proxy, count int) (m *member, err error) {
	m = &member{Testbed: suite.New(n), proxy: proxy, services: count, backends: s.backendsBeside(proxy)}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err := m.OpenLab(ctx, testbed.Options{Nodes: 2, MTU: s.MTU}); err != nil {
		return m, err
	}
	if err := m.start(ctx); err != nil {
		return m, fmt.Errorf("bring up %s: %w", n.Name(), err)
	}
	if m.Client, err = m.addPod(ctx, 0, "client"); err != nil {
		return m, err
	}
	if m.Server[result.CrossNode], err = m.addPod(ctx, 1, "far"); err != nil {
		return m, err
	}
	if err := m.Verify(ctx); err != nil {
		return m, err
	}
	if err := m.Serve(ctx, s.Cells, suite.ServicePorts, false); err != nil {
		return m, err
	}
	if err := m.Echo(ctx); err != nil || proxy == nil {
		return m, err
	}
	if err := m.addTargets(); err != nil {
		return m, err
	}
	// Now that all objects exist, they are written at once, which may take kube-proxy long.
	if err := proxy.StartProxy(ctx, m.Lab); err != nil {
		return m, fmt.Errorf("start %s: %w", n.Name(), err)
	}
	return m, m.reach(ctx)
}

// start brings the network up, with the Services that only add to the number.
func (m *member) start(ctx context.Context) error {
	if m.proxy != nil {
		objects := append(services.Fill(m.services-m.targetCount(), m.backends, m.Lab.Nodes()), policies.Namespace(policies.Default, nil))
		if err := m.ServeObjects(ctx, objects...); err != nil {
			return err
		}
	}
	return m.Network.Up(ctx, m.Lab)
}

func (m *member) targetCount() int { return min(m.services, mostTargets) }

func (m *member) addPod(ctx context.Context, node int, name string) (*testbed.Pod, error) {
	pod, err := m.AddPod(ctx, node, name)
	if err != nil {
		return nil, err
	}
	return pod, m.Prepare(pod.Netns, suite.ServiceReserved)
}

// addTargets adds the Services that lead to the servers.
func (m *member) addTargets() error {
	pod, p := m.Server[result.CrossNode], suite.ServicePorts
	ports := slices.Concat([]int{p.Netperf, p.Sockperf, p.Redis, suite.EchoPort}, p.HTTP, p.Data)
	var objects []runtime.Object
	for i := range m.targetCount() {
		s := services.Service{
			Name: fmt.Sprintf("target-%d", i), Address: services.TargetAddress(i), Ports: ports,
			Backends: []services.Backend{{Address: pod.Addresses[0], Node: pod.Node}},
		}
		m.targets = append(m.targets, s)
		objects = append(objects, s.Objects()...)
	}
	return m.API.Put(objects...)
}

// reach waits until a connection through every target has arrived.
func (m *member) reach(ctx context.Context) (err error) {
	client, err := convergence.Start(m.Client.Netns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	limit := reachLimit + time.Duration(m.services)*reachLimitEach
	for _, s := range m.targets {
		if _, err := client.Reach(ctx, netip.AddrPortFrom(s.Address, suite.EchoPort), 0, limit); err != nil {
			return fmt.Errorf("reach Service %s of %s: %w", s.Name, m.Name(), err)
		}
	}
	return nil
}

// Sample runs one cell.
func (m *member) Sample(ctx context.Context, cell round.Cell, length time.Duration) result.Sample {
	defer func() { m.Turn++ }()
	servers := m.Servers[cell.Path]
	if _, through := cell.Workload.(workload.Through); through && m.proxy != nil {
		target := servers.Target()
		target.Address = m.targets[m.Turn%len(m.targets)].Address
		return m.Measure(ctx, cell, length, at{servers, target})
	}
	return m.Measure(ctx, cell, length, servers)
}

// at is a server under another address.
type at struct {
	*workload.Servers
	target workload.Target
}

func (a at) Target() workload.Target { return a.target }
