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

	"github.com/beeline-cni/beeline/lab/contender"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/topology"
	"github.com/beeline-cni/beeline/lab/workload"
)

// lane is a contender brought up on a lab of its own, with the pods and servers of all paths.
type lane struct {
	contender contender.Contender
	lab       *topology.Lab
	client    *topology.Pod
	server    map[result.Path]*topology.Pod
	servers   map[result.Path]*workload.Servers
	// unserved says of cells why their server does not run; their samples fail with that.
	unserved map[stats.Key]error
}

// downTimeout is how long taking a lab down may take; it happens after an interrupt too.
const downTimeout = 30 * time.Second

// usualReserved are the ports that no client is given, because servers have them.
const usualReserved = "5201-5232,6379,8080-8095,11111,12865"

// newLane is a lane without a lab.
func newLane(c contender.Contender) *lane {
	return &lane{contender: c, server: map[result.Path]*topology.Pod{}, servers: map[result.Path]*workload.Servers{}, unserved: map[stats.Key]error{}}
}

// prepare sets what all clients and servers have in their namespaces; reserved are the ports that no client is given. TCP_CRR needs that:
// with the default port range it runs out of ports, because a port of a closed connection rests for a minute.
func (l *lane) prepare(pod *topology.Pod, reserved string) error {
	for _, s := range []struct{ name, value string }{
		{"net/ipv4/ip_local_port_range", "1024 65535"},
		{"net/ipv4/ip_local_reserved_ports", reserved},
		{"net/ipv4/tcp_tw_reuse", "1"},
	} {
		if err := l.lab.Place(pod).WriteSysctl(s.name, s.value); err != nil {
			return fmt.Errorf("prepare pod %s of %s: %w", pod.Name, l.contender.Name(), err)
		}
	}
	return nil
}

// labName gives labs of this process names of their own.
func labName(contender string) string {
	return fmt.Sprintf("bench%d-%s", os.Getpid(), strings.ReplaceAll(contender, "+", "-"))
}

// openLane brings a contender up. After an error nothing of it is left.
func openLane(ctx context.Context, c contender.Contender, p Plan) (l *lane, err error) {
	l = newLane(c)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	l.lab, err = topology.Up(ctx, topology.Options{Name: labName(c.Name()), Nodes: 2, MTU: p.MTU, IPv6: p.IPv6, Network: c.Name()})
	if err != nil {
		return l, fmt.Errorf("bring up lab of %s: %w", c.Name(), err)
	}
	if err := c.Up(ctx, l.lab); err != nil {
		return l, fmt.Errorf("bring up %s: %w", c.Name(), err)
	}
	pods := []struct {
		node int
		name string
		keep func(*topology.Pod)
	}{
		{0, "client", func(pod *topology.Pod) { l.client = pod }},
		{0, "near", func(pod *topology.Pod) { l.server[result.SameNode] = pod }},
		{1, "far", func(pod *topology.Pod) { l.server[result.CrossNode] = pod }},
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
		if err := contender.Verify(ctx, c, l.lab, l.client, l.server[path]); err != nil {
			return l, fmt.Errorf("verify %s path: %w", path, err)
		}
	}
	return l, l.serve(ctx, p)
}

// serve starts the servers that the plan needs. One that does not start is an error of its cell only.
func (l *lane) serve(ctx context.Context, p Plan) error {
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
func addressOf(pod *topology.Pod, six bool) (netip.Addr, error) {
	for _, a := range pod.Addresses {
		if a.Is6() == six {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("pod %s has no address of the family measured, only %v", pod.Name, pod.Addresses)
}

// hasPods says whether the contender makes pods, or measures the nodes themselves.
func (l *lane) hasPods() bool { return l.client.Netns != l.lab.Node(0).Netns }

// cgroups are those of the lab's nodes, in which everything of the lab runs.
func (l *lane) cgroups() []string {
	var list []string
	if l.lab != nil {
		for _, n := range l.lab.Nodes() {
			list = append(list, n.Cgroup)
		}
	}
	return list
}

func (l *lane) record(ctx context.Context) result.Network {
	facts := map[string]string{}
	maps.Copy(facts, l.contender.Facts(ctx, l.lab))
	facts["MTU of the path"] = fmt.Sprint(l.client.MTU)
	return result.Network{Name: l.contender.Name(), Description: l.contender.Description(), Version: facts["agent"], Facts: facts}
}

// close ends the servers and takes the lab down with everything in it, whatever the state it is in.
func (l *lane) close() error {
	var errs []error
	for _, s := range l.servers {
		errs = append(errs, s.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if l.lab != nil {
		if err := l.lab.Down(ctx); err != nil {
			errs = append(errs, fmt.Errorf("take down lab of %s: %w", l.contender.Name(), err))
		}
	}
	return errors.Join(errs...)
}
