package measure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// testbed is a network brought up on a lab of its own, with the pods and servers of all paths.
type Testbed struct {
	network network.Network
	lab     *testbed.Lab
	client  *testbed.Pod
	server  map[result.Path]*testbed.Pod
	servers map[result.Path]*workload.Servers
	// unserved says of cells why their server does not run; their samples fail with that.
	unserved map[stats.Key]error
}

// downTimeout is how long taking a lab down may take; it happens after an interrupt too.
const downTimeout = 30 * time.Second

// usualReserved are the ports that no client is given, because servers have them.
const usualReserved = "5201-5232,6379,8080-8095,11111,12865"

// newTestbed is a testbed without a lab.
func newTestbed(c network.Network) *Testbed {
	return &Testbed{network: c, server: map[result.Path]*testbed.Pod{}, servers: map[result.Path]*workload.Servers{}, unserved: map[stats.Key]error{}}
}

// prepare sets what all clients and servers have in their namespaces; reserved are the ports that no client is given. TCP_CRR needs that:
// with the default port range it runs out of ports, because a port of a closed connection rests for a minute.
func (l *Testbed) prepare(pod *testbed.Pod, reserved string) error {
	for _, s := range []struct{ name, value string }{
		{"net/ipv4/ip_local_port_range", "1024 65535"},
		{"net/ipv4/ip_local_reserved_ports", reserved},
		{"net/ipv4/tcp_tw_reuse", "1"},
	} {
		if err := l.lab.Place(pod).WriteSysctl(s.name, s.value); err != nil {
			return fmt.Errorf("prepare pod %s of %s: %w", pod.Name, l.network.Name(), err)
		}
	}
	return nil
}

// labName gives labs of this process names of their own.
func labName(network string) string {
	return fmt.Sprintf("bench%d-%s", os.Getpid(), strings.ReplaceAll(network, "+", "-"))
}

// openTestbed brings a network up. After an error nothing of it is left.
func openTestbed(ctx context.Context, c network.Network, p Plan) (l *Testbed, err error) {
	l = newTestbed(c)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	l.lab, err = testbed.Up(ctx, testbed.Options{Name: labName(c.Name()), Nodes: 2, MTU: p.MTU, IPv6: p.IPv6, Network: c.Name()})
	if err != nil {
		return l, fmt.Errorf("bring up lab of %s: %w", c.Name(), err)
	}
	if err := c.Up(ctx, l.lab); err != nil {
		return l, fmt.Errorf("bring up %s: %w", c.Name(), err)
	}
	pods := []struct {
		node int
		name string
		keep func(*testbed.Pod)
	}{
		{0, "client", func(pod *testbed.Pod) { l.client = pod }},
		{0, "near", func(pod *testbed.Pod) { l.server[result.SameNode] = pod }},
		{1, "far", func(pod *testbed.Pod) { l.server[result.CrossNode] = pod }},
	}
	for _, want := range pods {
		pod, err := c.AddPod(ctx, l.lab, l.lab.Node(want.node), want.name)
		if err != nil {
			return l, fmt.Errorf("add pod %s of %s: %w", want.name, c.Name(), err)
		}
		want.keep(pod)
		if err := l.prepare(pod, usualReserved); err != nil {
			return l, err
		}
	}
	for _, path := range []result.Path{result.CrossNode, result.SameNode} {
		if err := network.Verify(ctx, c, l.lab, l.client, l.server[path]); err != nil {
			return l, fmt.Errorf("verify %s path: %w", path, err)
		}
	}
	return l, l.serve(ctx, p)
}

// serve starts the servers that the plan needs. One that does not start is an error of its cell only.
func (l *Testbed) serve(ctx context.Context, p Plan) error {
	for _, cell := range slices.Concat(p.Cells, p.ProgramCells) {
		pod := l.server[cell.Path]
		if pod == nil {
			return fmt.Errorf("no path %q", cell.Path)
		}
		if l.servers[cell.Path] == nil {
			address, err := addressOf(pod, p.IPv6)
			if err != nil {
				return err
			}
			_, cpu, err := cpus(cell.Placement, allowed())
			if err != nil {
				return err
			}
			l.servers[cell.Path] = workload.NewServers(l.lab.Place(pod).On(cpu), workload.Target{Address: address, Ports: workload.UsualPorts})
		}
		if err := cell.Workload.Serve(ctx, l.servers[cell.Path], cell.Procs); err != nil {
			l.unserved[cell.key()] = err
		}
	}
	return ctx.Err()
}

// addressOf picks the family that is measured.
func addressOf(pod *testbed.Pod, six bool) (netip.Addr, error) {
	for _, a := range pod.Addresses {
		if a.Is6() == six {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("pod %s has no address of the family measured, only %v", pod.Name, pod.Addresses)
}

// hasPods says whether the network makes pods, or measures the nodes themselves.
func (l *Testbed) hasPods() bool { return l.client.Netns != l.lab.Node(0).Netns }

// cgroups are those of the lab's nodes, in which everything of the lab runs.
func (l *Testbed) cgroups() []string {
	var list []string
	if l.lab != nil {
		for _, n := range l.lab.Nodes() {
			list = append(list, n.Cgroup)
		}
	}
	return list
}

func (l *Testbed) record(ctx context.Context) result.Network {
	facts := map[string]string{}
	maps.Copy(facts, l.network.Facts(ctx, l.lab))
	facts["MTU of the path"] = fmt.Sprint(l.client.MTU)
	return result.Network{Name: l.network.Name(), Description: l.network.Description(), Version: facts["agent"], Facts: facts}
}

// close ends the servers and takes the lab down with everything in it, whatever the state it is in.
func (l *Testbed) close() error {
	var errs []error
	for _, s := range l.servers {
		errs = append(errs, s.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if l.lab != nil {
		if err := l.lab.Down(ctx); err != nil {
			errs = append(errs, fmt.Errorf("take down lab of %s: %w", l.network.Name(), err))
		}
	}
	return errors.Join(errs...)
}
