package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

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
	// API is the lab's API server, where the network watches one.
	API    *apiserver.Server
	Client *testbed.Pod
	// Server and Servers are the pods and their programs, by path.
	Server  map[result.Path]*testbed.Pod
	Servers map[result.Path]*workload.Servers
	// Turn counts the samples of a suite whose servers take turns on ports.
	Turn int
	// unserved says why the server of a cell does not run. The cell's samples fail with that.
	unserved map[stats.Key]error
	echo     net.Listener
}

// DownTimeout is how long taking a lab down may take; it happens after an interrupt too.
const DownTimeout = 30 * time.Second

// New is a testbed without a lab.
func New(n network.Network) *Testbed {
	return &Testbed{Network: n, Server: map[result.Path]*testbed.Pod{}, Servers: map[result.Path]*workload.Servers{}, unserved: map[stats.Key]error{}}
}

// labs numbers the labs of this process.
var labs atomic.Int32

// LabName returns the labs of this process names of their own.
func LabName() string { return fmt.Sprintf("bench%d-%d", os.Getpid(), labs.Add(1)) }

// OpenLab brings up the lab. The testbed has to be closed also after an error.
func (t *Testbed) OpenLab(ctx context.Context, o testbed.Options) (err error) {
	o.Name, o.Network = LabName(), t.Network.Name()
	if t.Lab, err = testbed.Up(ctx, o); err != nil {
		return fmt.Errorf("bring up lab of %s: %w", t.Name(), err)
	}
	return nil
}

// ServeObjects starts the lab's API server with these objects beside the nodes.
func (t *Testbed) ServeObjects(ctx context.Context, objects ...runtime.Object) (err error) {
	if t.API, _, err = network.ServeObjects(ctx, t.Lab); err != nil {
		return err
	}
	return t.API.Put(objects...)
}

func (t *Testbed) testbed() *Testbed { return t }

// Name is the network's.
func (t *Testbed) Name() string { return t.Network.Name() }

// AddPod makes a pod. The API server, if there is one, has its object.
func (t *Testbed) AddPod(ctx context.Context, node int, name string) (*testbed.Pod, error) {
	put := func(...runtime.Object) error { return nil }
	if t.API != nil {
		put = t.API.Put
	}
	pod, _, err := network.AddKnownPod(ctx, t.Network, t.Lab, t.Lab.Node(node), policies.Pod{Namespace: policies.Default, Name: name}, put)
	return pod, err
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
			t.Servers[cell.Path] = workload.NewServers(pod.On(cpu), workload.Target{Address: address, Ports: ports})
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

// Echo answers at EchoPort in the server's pod until the testbed is closed.
func (t *Testbed) Echo(ctx context.Context) (err error) {
	pod := t.Server[result.CrossNode]
	t.echo, err = convergence.Listen(ctx, pod.Netns, netip.AddrPortFrom(pod.Addresses[0], EchoPort), 0)
	return err
}

// openPatience is how long agents may take until they admit traffic of new pods.
const openPatience = 30 * time.Second

// Verify proves that the client and the server on the other node reach each other, as soon as the network admits it.
func (t *Testbed) Verify(ctx context.Context) error {
	for begin := time.Now(); ; {
		err := network.Verify(ctx, t.Network, t.Client, t.Server[result.CrossNode])
		if err == nil || ctx.Err() != nil || time.Since(begin) > openPatience {
			return err
		}
	}
}

// Measure runs one cell with a server. What goes wrong is in the sample's Error.
func (t *Testbed) Measure(ctx context.Context, cell round.Cell, length time.Duration, server workload.Server) result.Sample {
	s := round.NewSample(cell)
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
	return s
}

// HasPods reports whether the network makes pods, or measures the nodes themselves.
func (t *Testbed) HasPods() bool { return t.Client.Netns != t.Lab.Node(0).Netns }

// Cgroups are those of the lab's nodes, in which everything of the lab runs.
func (t *Testbed) Cgroups() []string {
	var list []string
	if t.Lab != nil {
		for _, n := range t.Lab.Nodes() {
			list = append(list, n.Cgroup)
		}
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

// Close ends the servers and takes the lab down with everything in it, whatever its state.
func (t *Testbed) Close() error {
	var errs []error
	if t.echo != nil {
		t.echo.Close()
	}
	for _, s := range t.Servers {
		errs = append(errs, s.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), DownTimeout)
	defer cancel()
	if t.Lab != nil {
		if err := t.Lab.Down(ctx); err != nil {
			errs = append(errs, fmt.Errorf("take down lab of %s: %w", t.Name(), err))
		}
	}
	if t.API != nil {
		errs = append(errs, t.API.Close())
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
