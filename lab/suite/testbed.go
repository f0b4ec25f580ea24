package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Testbed is a network brought up on a lab of its own, with a client on the first node and servers.
type Testbed struct {
	Network network.Network
	Lab     *testbed.Lab
	// API is the lab's API server, where there is one.
	API    *apiserver.Server
	Client *testbed.Pod
	// Server and Servers are the pods and their programs, by path.
	Server  map[result.Path]*testbed.Pod
	Servers map[result.Path]*workload.Servers
	// Turn counts the samples: servers take turns on ports.
	Turn int
	// Account has the CPU time of a sample its own way: passed is what went by on CPUs, or on all for none. nil: the CPU time
	// is that of the two ends' CPUs.
	Account func(s *result.Sample, client, server int, passed func(cpus ...int) procstat.Ticks)
	// unserved says why the server of a cell does not run. The cell's samples fail with that.
	unserved map[stats.Key]error
	closers  []func() error
}

// labs numbers the labs of this process.
var labs atomic.Int32

// Open brings up a lab for a network, and has fill bring up the rest. After an error nothing of it is left.
func Open(ctx context.Context, n network.Network, o testbed.Options, fill func(*Testbed) error) (t *Testbed, err error) {
	t = &Testbed{Network: n, Server: map[result.Path]*testbed.Pod{}, Servers: map[result.Path]*workload.Servers{}, unserved: map[stats.Key]error{}}
	o.Name, o.Network = fmt.Sprintf("bench%d-%d", os.Getpid(), labs.Add(1)), n.Name()
	if t.Lab, err = testbed.Up(ctx, o); err != nil {
		return t, fmt.Errorf("bring up lab of %s: %w", n.Name(), err)
	}
	if err := fill(t); err != nil {
		return t, errors.Join(err, t.Close())
	}
	return t, nil
}

// OnClose has something end with the testbed, before what was there earlier.
func (t *Testbed) OnClose(end func() error) { t.closers = append(t.closers, end) }

// ServeObjects starts the lab's API server with these objects beside the nodes and the network's IPPools.
func (t *Testbed) ServeObjects(ctx context.Context, objects ...runtime.Object) (err error) {
	if t.API, _, err = network.ServeObjects(ctx, t.Lab); err != nil {
		return err
	}
	t.OnClose(t.API.Close)
	return t.API.Put(append(network.Pools(t.Network, t.Lab), objects...)...)
}

// Up brings the network up.
func (t *Testbed) Up(ctx context.Context) error {
	if err := t.Network.Up(ctx, t.Lab); err != nil {
		return fmt.Errorf("bring up %s: %w", t.Name(), err)
	}
	if n, ok := t.Network.(network.Closer); ok {
		t.OnClose(func() error { return n.Down(context.WithoutCancel(ctx), t.Lab) })
	}
	return nil
}

// Testbeds is this one: most networks have one.
func (t *Testbed) Testbeds() []*Testbed { return []*Testbed{t} }

// Name is the network's.
func (t *Testbed) Name() string { return t.Network.Name() }

// Put adds or changes objects of the API server, if there is one. A network that does not watch it enforces them.
func (t *Testbed) Put(ctx context.Context, objects ...runtime.Object) error {
	if t.API == nil {
		return nil
	}
	return errors.Join(t.API.Put(objects...), t.enforce(ctx))
}

// Delete is Put's opposite.
func (t *Testbed) Delete(ctx context.Context, objects ...runtime.Object) error {
	return errors.Join(t.API.Delete(objects...), t.enforce(ctx))
}

func (t *Testbed) enforce(ctx context.Context) (err error) {
	if e, ok := t.Network.(network.PolicyEnforcer); ok && !e.Watches() {
		_, err = e.Enforce(ctx, t.Lab, t.API)
	}
	return err
}

// AddPod makes a pod. The API server, if there is one, has its object.
func (t *Testbed) AddPod(ctx context.Context, node int, p policies.Pod) (*testbed.Pod, error) {
	put := func(objects ...runtime.Object) error { return t.Put(ctx, objects...) }
	return network.AddKnownPod(ctx, t.Network, t.Lab, t.Lab.Node(node), p, put)
}

// DelPod removes a pod of the namespace default, and then its object, if there is an API server.
func (t *Testbed) DelPod(ctx context.Context, pod *testbed.Pod) error {
	err := network.DelPod(ctx, t.Network, t.Lab, pod)
	if t.API == nil {
		return err
	}
	return errors.Join(err, t.Delete(ctx, policies.Pod{Namespace: policies.Default, Name: pod.Name}.Object()))
}

// UsualReserved are the ports of the servers, which no client gets.
const UsualReserved = "5201-5232,6379,8080-8095,11111,12865"

// Prepare sets what all clients and servers have in their namespaces; reserved are the ports that no client gets.
// TCP_CRR needs that: with the default port range it runs out of ports, because a port of a closed connection is in
// TIME_WAIT for a minute.
func (t *Testbed) Prepare(netns testbed.Netns, reserved string) error {
	for _, s := range []struct{ name, value string }{
		{"net/ipv4/ip_local_port_range", "1024 65535"},
		{"net/ipv4/ip_local_reserved_ports", reserved},
		{"net/ipv4/tcp_tw_reuse", "1"},
	} {
		if err := netns.WriteSysctl(s.name, s.value); err != nil {
			return fmt.Errorf("prepare ends of %s: %w", t.Name(), err)
		}
	}
	return nil
}

// Serve starts the servers of cells at these ports. A server that does not start is an error of its cell only.
func (t *Testbed) Serve(ctx context.Context, cells []round.Cell, ports workload.Ports, ipv6 bool) error {
	for _, cell := range cells {
		pod := t.Server[cell.Path]
		if pod == nil {
			return fmt.Errorf("no path %q", cell.Path)
		}
		if t.Servers[cell.Path] == nil {
			address, err := addressOf(pod, ipv6)
			if err != nil {
				return err
			}
			_, cpu, err := round.EndCPUs(cell.Placement)
			if err != nil {
				return err
			}
			servers := workload.NewServers(pod.On(cpu), workload.Target{Address: address, Ports: ports})
			t.OnClose(servers.Close)
			t.Servers[cell.Path] = servers
		}
		if err := cell.Workload.Serve(ctx, t.Servers[cell.Path], cell.Procs); err != nil {
			t.unserved[cell.Key()] = err
		}
	}
	return ctx.Err()
}

// addressOf returns the pod's address of the family that is measured.
func addressOf(pod *testbed.Pod, ipv6 bool) (netip.Addr, error) {
	for _, a := range pod.Addresses {
		if a.Is6() == ipv6 {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("pod %s has no address of the family measured, only %v", pod.Name, pod.Addresses)
}

// Listen answers with a number at a port of a pod until the testbed is closed.
func (t *Testbed) Listen(ctx context.Context, pod *testbed.Pod, port uint16, who byte) (at netip.AddrPort, err error) {
	at = netip.AddrPortFrom(pod.Addresses[0], port)
	listener, err := convergence.Listen(ctx, pod.Netns, at, who)
	if err == nil {
		t.OnClose(listener.Close)
	}
	return at, err
}

// Connect starts a client in a pod, which makes connections until the testbed is closed.
func (t *Testbed) Connect(pod *testbed.Pod) (*convergence.Client, error) {
	client, err := convergence.Start(pod.Netns)
	if err == nil {
		t.OnClose(client.Close)
	}
	return client, err
}

// AgentStatus asks the agent of a node. It returns an error for a network without agents.
func (t *Testbed) AgentStatus(ctx context.Context, node int) (*agentapi.Status, error) {
	n := t.Lab.Node(node)
	socket := network.AgentSocket(t.Network, n)
	if socket == "" {
		return nil, fmt.Errorf("%s has no agents", t.Name())
	}
	status, err := agentapi.NewClient(socket).Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask agent of %s: %w", n.Name, err)
	}
	return status, nil
}

// HasAgent reports whether the network has agents.
func (t *Testbed) HasAgent() bool { return network.AgentSocket(t.Network, t.Lab.Node(0)) != "" }

// MapBytes is what the BPF maps of the first node's agent hold; 0 for networks without agents.
func (t *Testbed) MapBytes(ctx context.Context) (sum uint64, err error) {
	if !t.HasAgent() {
		return 0, nil
	}
	s, err := t.AgentStatus(ctx, 0)
	if err != nil {
		return 0, err
	}
	for _, m := range s.Maps {
		sum += m.Bytes
	}
	return sum, nil
}

// openPatience is how long agents may take until they admit traffic of new pods.
const openPatience = 30 * time.Second

// Verify proves that the client and the servers reach each other, as soon as the network admits it.
func (t *Testbed) Verify(ctx context.Context) error {
	for path, server := range t.Server {
		for begin := time.Now(); ; {
			err := network.Verify(ctx, t.Network, t.Client, server)
			if err == nil {
				break
			}
			if ctx.Err() != nil || time.Since(begin) > openPatience {
				return fmt.Errorf("verify %s path: %w", path, err)
			}
		}
	}
	return nil
}

// Sample runs one cell with the server of its path.
func (t *Testbed) Sample(ctx context.Context, cell round.Cell, length time.Duration) result.Sample {
	return t.Measure(ctx, cell, length, t.Servers[cell.Path])
}

// Measure runs one cell with a server. What goes wrong is in the sample's Error.
func (t *Testbed) Measure(ctx context.Context, cell round.Cell, length time.Duration, server workload.Server) result.Sample {
	s := round.NewSample(cell)
	t.Turn++
	if err := t.unserved[cell.Key()]; err != nil {
		return round.Failed(s, err)
	}
	client, cpu, err := round.EndCPUs(cell.Placement)
	if err != nil {
		return round.Failed(s, err)
	}
	watched := []int{cpu}
	if client != cpu {
		watched = append(watched, client)
	}
	var window procstat.Window
	out, err := cell.Workload.Run(ctx, workload.Request{
		Client: t.Client.On(client), Server: server, Procs: cell.Procs, Length: length, Turn: t.Turn, Window: window.Mark,
	})
	round.Fill(&s, out)
	if err = errors.Join(err, window.Err); err != nil {
		return round.Failed(s, err)
	}
	if s.Seconds == 0 {
		s.Seconds = window.Seconds()
	}
	s.CPU = window.Passed(watched...).CPUTime()
	if t.Account != nil {
		t.Account(&s, client, cpu, window.Passed)
	}
	return s
}

// HasPods reports whether the network makes pods, or measures the nodes themselves.
func (t *Testbed) HasPods() bool { return t.Client.Netns != t.Lab.Node(0).Netns }

// cgroups are those in which everything of the lab runs.
func (t *Testbed) cgroups() (list []string) {
	for _, n := range t.Lab.Nodes() {
		list = append(list, n.Cgroup)
	}
	if t.Lab.Outside {
		list = append(list, t.Lab.Client().Cgroup)
	}
	return list
}

// Record describes the network for the result.
func (t *Testbed) Record(ctx context.Context) result.Network {
	facts := map[string]string{}
	maps.Copy(facts, t.Network.Facts(ctx, t.Lab))
	if t.Client != nil {
		facts["MTU of the path"] = fmt.Sprint(t.Client.MTU)
	}
	return result.Network{Name: t.Name(), Description: t.Network.Description(), Version: facts["agent"], Facts: facts}
}

// downTimeout is how long taking a lab down may take; it happens after an interrupt too.
const downTimeout = 30 * time.Second

// Close ends the servers and takes the lab down with everything in it, whatever its state.
func (t *Testbed) Close() error {
	var errs []error
	for _, end := range slices.Backward(t.closers) {
		errs = append(errs, end())
	}
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if err := t.Lab.Down(ctx); err != nil {
		errs = append(errs, fmt.Errorf("take down lab of %s: %w", t.Name(), err))
	}
	return errors.Join(errs...)
}

// EchoPort is the port at which backends answer with their number.
const EchoPort = 7000

// ServicePorts are those of the servers and of the Services that lead there. Tools tell each other port numbers, so a
// Service must not change them.
var ServicePorts = workload.Ports{
	Netperf: 12865, Sockperf: 11111, Redis: 6379, HTTP: workload.Consecutive(8080, workload.HTTPPorts), Data: workload.Consecutive(20001, 4),
}

// ServiceReserved are the ports of ServicePorts and EchoPort, which no client gets.
const ServiceReserved = "6379,7000,8080-8095,11111,12865,20001-20004"
