package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// serviceTestbed is a network brought up on a lab of its own with a number of Services, a client on the first node and a
// server on the second.
type serviceTestbed struct {
	*Testbed
	proxy    network.Proxy // nil for the baseline
	api      *apiserver.Server
	services int
	backends int
	// targets are the Services of the server, which samples use in turn: where in a list of rules one stands is chance.
	targets []services.Service
	turn    int
	echo    net.Listener
}

const (
	// mostTargets is how many Services have the server as their backend.
	mostTargets = 8
	// echoPort is where backends tell themselves apart.
	echoPort = 7000
	// reachLimit is how long a network may take until the Services of a testbed work, and reachLimitEach what each of
	// them adds to that.
	reachLimit     = 30 * time.Second
	reachLimitEach = 30 * time.Millisecond
)

// servicePorts are those of the servers, and of the Services that lead there: tools tell each other numbers, so a Service
// must not change them.
var servicePorts = workload.Ports{Netperf: 12865, Sockperf: 11111, Redis: 6379, HTTP: workload.Consecutive(8080, workload.HTTPPorts), Data: workload.Consecutive(20001, 4)}

// serviceReserved are the ports that no client is given.
const serviceReserved = "6379,7000,8080-8095,11111,12865,20001-20004"

// lanesMade numbers the labs of this process.
var lanesMade int

func nextLabName() string {
	lanesMade++
	return fmt.Sprintf("bench%d-s%d", os.Getpid(), lanesMade)
}

// openServiceTestbed brings a network up with so many Services; proxy is nil for the baseline. After an error nothing of it
// is left.
func openServiceTestbed(ctx context.Context, proxy network.Proxy, count, backends int, p ServicesPlan) (l *serviceTestbed, err error) {
	l = &serviceTestbed{
		Testbed: newTestbed(network.Node{}),
		proxy:   proxy, services: count, backends: backends,
	}
	if proxy != nil {
		l.network = proxy
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	l.lab, err = testbed.Up(ctx, testbed.Options{Name: nextLabName(), Nodes: 2, MTU: p.MTU, Network: l.network.Name()})
	if err != nil {
		return l, fmt.Errorf("bring up lab of %s: %w", l.network.Name(), err)
	}
	if err := l.start(ctx); err != nil {
		return l, fmt.Errorf("bring up %s: %w", l.network.Name(), err)
	}
	if err := l.addPods(ctx); err != nil {
		return l, err
	}
	if err := verifyOpen(ctx, l.Testbed); err != nil {
		return l, err
	}
	if err := l.serveServices(ctx, p); err != nil {
		return l, err
	}
	if proxy == nil {
		return l, nil
	}
	// Now that all objects are there, they are written at once, which may take kube-proxy long.
	if err := l.proxy.StartProxy(ctx, l.lab); err != nil {
		return l, fmt.Errorf("start %s: %w", l.network.Name(), err)
	}
	return l, l.reach(ctx)
}

// openPatience is how long pods may take to be let: until policies are known, they are closed.
const openPatience = 30 * time.Second

// verifyOpen proves that the client and the server of a testbed reach each other as soon as they are let.
func verifyOpen(ctx context.Context, l *Testbed) error {
	for begin := time.Now(); ; {
		err := network.Verify(ctx, l.network, l.lab, l.client, l.server[result.CrossNode])
		if err == nil || ctx.Err() != nil || time.Since(begin) > openPatience {
			return err
		}
	}
}

// start brings the network up, with the Services that are only there to be many.
func (l *serviceTestbed) start(ctx context.Context) (err error) {
	if l.proxy == nil {
		return l.network.Up(ctx, l.lab)
	}
	var kubeconfig string
	if l.api, kubeconfig, err = network.ServeObjects(ctx, l.lab); err != nil {
		return err
	}
	objects := append(services.Fill(l.services-l.targetCount(), l.backends, l.lab.Nodes()), policies.Namespace(policies.Default, nil))
	if err := l.api.Put(objects...); err != nil {
		return err
	}
	l.proxy = l.proxy.WithKubeconfig(kubeconfig)
	l.network = l.proxy
	return l.proxy.Up(ctx, l.lab)
}

func (l *serviceTestbed) targetCount() int { return min(l.services, mostTargets) }

func (l *serviceTestbed) addPods(ctx context.Context) (err error) {
	if l.client, err = l.addPod(ctx, 0, "client"); err != nil {
		return err
	}
	l.server[result.CrossNode], err = l.addPod(ctx, 1, "far")
	return err
}

func (l *serviceTestbed) addPod(ctx context.Context, node int, name string) (*testbed.Pod, error) {
	put := func(...runtime.Object) error { return nil }
	if l.api != nil {
		put = l.api.Put
	}
	pod, _, err := network.AddKnownPod(ctx, l.network, l.lab, l.lab.Node(node), policies.Pod{Namespace: policies.Default, Name: name}, put)
	if err != nil {
		return nil, err
	}
	return pod, l.prepare(pod, serviceReserved)
}

// serveServices starts the servers and tells the API server of the Services that lead to them.
func (l *serviceTestbed) serveServices(ctx context.Context, p ServicesPlan) error {
	var err error
	if l.echo, err = l.serveFar(ctx, p.Cells); err != nil || l.proxy == nil {
		return errors.Join(err, ctx.Err())
	}
	pod := l.server[result.CrossNode]
	ports := slices.Concat([]int{servicePorts.Netperf, servicePorts.Sockperf, servicePorts.Redis, echoPort}, servicePorts.HTTP, servicePorts.Data)
	var objects []runtime.Object
	for i := range l.targetCount() {
		s := services.Service{
			Name: fmt.Sprintf("target-%d", i), Address: services.TargetAddress(i), Ports: ports,
			Backends: []services.Backend{{Address: pod.Addresses[0], Node: pod.Node}},
		}
		l.targets = append(l.targets, s)
		objects = append(objects, s.Objects()...)
	}
	return errors.Join(l.api.Put(objects...), ctx.Err())
}

// serveFar starts the servers of cells in the pod of the other node, at servicePorts, and who answers at echoPort.
func (l *Testbed) serveFar(ctx context.Context, cells []Cell) (echo net.Listener, err error) {
	pod := l.server[result.CrossNode]
	_, cpu, err := cpus(cells[0].Placement, allowed())
	if err != nil {
		return nil, err
	}
	servers := workload.NewServers(l.lab.Place(pod).On(cpu), workload.Target{Address: pod.Addresses[0], Ports: servicePorts})
	l.servers[result.CrossNode] = servers
	for _, cell := range cells {
		if err := cell.Workload.Serve(ctx, servers, cell.Procs); err != nil {
			l.unserved[cell.key()] = err
		}
	}
	return convergence.Listen(ctx, l.lab.Place(pod), netip.AddrPortFrom(pod.Addresses[0], echoPort), 0)
}

// reach waits until a connection through every target has arrived.
func (l *serviceTestbed) reach(ctx context.Context) (err error) {
	client, err := l.follower()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	limit := reachLimit + time.Duration(l.services)*reachLimitEach
	for _, s := range l.targets {
		if _, err := client.Reach(ctx, netip.AddrPortFrom(s.Address, echoPort), 0, limit); err != nil {
			return fmt.Errorf("reach Service %s of %s: %w", s.Name, l.network.Name(), err)
		}
	}
	return nil
}

// follower is a client of connections in the client's pod.
func (l *serviceTestbed) follower() (*convergence.Client, error) {
	program, err := network.Program()
	if err != nil {
		return nil, err
	}
	return convergence.Start(l.lab.Place(l.client), program)
}

// sample runs one cell. What goes wrong is in the sample's Error.
func (l *serviceTestbed) sample(ctx context.Context, cell Cell, length time.Duration) result.Sample {
	servers := l.servers[cell.Path]
	request := workload.Request{Server: servers, Procs: cell.Procs, Length: length, Turn: l.turn}
	if _, through := cell.Workload.(workload.Through); through && l.proxy != nil {
		target := servers.Target()
		target.Address = l.targets[l.turn%len(l.targets)].Address
		request.Server = at{servers, target}
	}
	l.turn++
	return l.Testbed.sample(ctx, cell, request)
}

// at is a server under another address.
type at struct {
	*workload.Servers
	target workload.Target
}

func (a at) Target() workload.Target { return a.target }

// close ends everything of the testbed, whatever the state it is in.
func (l *serviceTestbed) close() error {
	if l.echo != nil {
		l.echo.Close()
	}
	err := l.Testbed.close()
	if l.api != nil {
		err = errors.Join(err, l.api.Close())
	}
	return err
}
