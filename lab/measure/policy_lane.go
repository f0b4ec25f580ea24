package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/contender"
	"github.com/beeline-cni/beeline/lab/follow"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/topology"
	"github.com/beeline-cni/beeline/lab/truth"
	"github.com/beeline-cni/beeline/lab/workload"
)

// policyLane is a contender brought up on a lab of its own with its policies, a client on the first node and a server on the
// second.
type policyLane struct {
	*lane
	// policed is the contender where it enforces policies, else nil. objects is then what there is, and api who serves it
	// where the contender watches an API server.
	policed contender.Policed
	objects *policies.State
	api     *apiserver.Server
	// known are the Pods of the lab's pods, by the names of those.
	known map[string]policies.Pod
	echo  net.Listener
	turn  int
}

const (
	// policyPatience is how long policies of a lane may take to be in force.
	policyPatience = 30 * time.Second
	// refusedPort is one that somebody listens at and no policy allows.
	refusedPort = 7001
)

// policyPorts are those that the policies of the measured pods allow.
func policyPorts() []int {
	return append([]int{servicePorts.Netperf, echoPort}, servicePorts.Data...)
}

// openPolicyLane brings a contender up. After an error nothing of it is left.
func openPolicyLane(ctx context.Context, c contender.Contender, p PolicyPlan) (l *policyLane, err error) {
	l = &policyLane{
		lane:  &lane{contender: c, server: map[result.Path]*topology.Pod{}, servers: map[result.Path]*workload.Servers{}, unserved: map[stats.Key]error{}},
		known: map[string]policies.Pod{},
	}
	l.policed, _ = c.(contender.Policed)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	l.lab, err = topology.Up(ctx, topology.Options{Name: nextLabName(), Nodes: 2, MTU: p.MTU, Network: c.Name()})
	if err != nil {
		return l, fmt.Errorf("bring up lab of %s: %w", c.Name(), err)
	}
	if err := l.start(ctx); err != nil {
		return l, fmt.Errorf("bring up %s: %w", c.Name(), err)
	}
	if err := l.addPods(ctx); err != nil {
		return l, err
	}
	if err := verifyOpen(ctx, l.lane); err != nil {
		return l, err
	}
	if err := l.serve(ctx, p); err != nil {
		return l, err
	}
	return l, l.govern(ctx)
}

// start brings the contender up, with what is there before any pod.
func (l *policyLane) start(ctx context.Context) (err error) {
	if l.policed == nil {
		return l.contender.Up(ctx, l.lab)
	}
	before, err := l.policed.Present().Before()
	if err != nil {
		return err
	}
	l.objects = policies.NewState()
	if err := l.objects.Put(before...); err != nil {
		return err
	}
	if l.policed.Watches() {
		var kubeconfig string
		if l.api, kubeconfig, err = contender.ServeObjects(ctx, l.lab); err != nil {
			return err
		}
		if err := l.api.Put(before...); err != nil {
			return err
		}
		l.policed = l.policed.Asking(kubeconfig)
		l.contender = l.policed
	}
	return l.contender.Up(ctx, l.lab)
}

// put tells of objects, and where nobody watches, brings them into force.
func (l *policyLane) put(ctx context.Context, objects ...runtime.Object) error {
	if l.policed == nil {
		return nil
	}
	if l.api != nil {
		return l.api.Put(objects...)
	}
	if err := l.objects.Put(objects...); err != nil {
		return err
	}
	_, err := l.policed.Enforce(ctx, l.lab, l.objects)
	return err
}

// remove is put's opposite.
func (l *policyLane) remove(ctx context.Context, objects ...runtime.Object) error {
	if l.api != nil {
		return l.api.Delete(objects...)
	}
	l.objects.Delete(objects...)
	_, err := l.policed.Enforce(ctx, l.lab, l.objects)
	return err
}

func (l *policyLane) addPods(ctx context.Context) (err error) {
	pod := func(node int, name string, labels map[string]string) *topology.Pod {
		var made *topology.Pod
		if err == nil {
			made, err = l.addPod(ctx, node, policies.Pod{Namespace: policies.Default, Name: name, Labels: labels})
		}
		return made
	}
	l.client = pod(0, "client", policies.ClientLabels)
	l.server[result.CrossNode] = pod(1, "far", policies.ServerLabels)
	if l.policed != nil && l.policed.Present().Bystanders() {
		pod(0, "bystander0", policies.BystanderLabels)
		pod(1, "bystander1", policies.BystanderLabels)
	}
	if err != nil {
		return err
	}
	for _, pod := range []*topology.Pod{l.client, l.server[result.CrossNode]} {
		for _, s := range endpointSysctls {
			value := s.value
			if s.name == reservedPorts {
				value = serviceReserved
			}
			if err := l.lab.Place(pod).WriteSysctl(s.name, value); err != nil {
				return fmt.Errorf("prepare pod %s of %s: %w", pod.Name, l.contender.Name(), err)
			}
		}
	}
	return nil
}

// addPod makes a pod and tells of it.
func (l *policyLane) addPod(ctx context.Context, node int, p policies.Pod) (*topology.Pod, error) {
	put := func(objects ...runtime.Object) error { return l.put(ctx, objects...) }
	pod, known, err := contender.AddKnownPod(ctx, l.contender, l.lab, l.lab.Node(node), p, put)
	l.known[p.Name] = known
	return pod, err
}

// serve starts the servers, and who answers at a port that is allowed and at one that is not.
func (l *policyLane) serve(ctx context.Context, p PolicyPlan) error {
	pod := l.server[result.CrossNode]
	_, cpu, err := cpus(p.Cells[0].Placement, allowed())
	if err != nil {
		return err
	}
	l.servers[result.CrossNode] = workload.NewServers(l.lab.Place(pod).On(cpu), workload.Target{Address: pod.Addresses[0], Ports: servicePorts})
	if l.hasPods() {
		l.servers[outside] = workload.NewServers(l.lab.Node(1).Place().On(cpu), workload.Target{Address: l.outside(), Ports: servicePorts})
	}
	for _, cell := range p.Cells {
		if err := cell.Workload.Serve(ctx, l.serversOf(cell), cell.Procs); err != nil {
			l.unserved[cell.key()] = err
		}
	}
	l.echo, err = follow.Listen(ctx, l.lab.Place(pod), netip.AddrPortFrom(pod.Addresses[0], echoPort), 0)
	return errors.Join(err, ctx.Err())
}

// outside names the servers that are on the second node itself.
const outside result.Path = "outside"

// outside is the address of the second node.
func (l *policyLane) outside() netip.Addr { return l.lab.Node(1).Addresses[0].Addr() }

// serversOf are those that a cell is measured with; without pods there is one place for both.
func (l *policyLane) serversOf(cell Cell) *workload.Servers {
	if _, ok := cell.Workload.(workload.Outside); ok && l.hasPods() {
		return l.servers[outside]
	}
	return l.servers[cell.Path]
}

// govern puts the policies of the measured pods and waits until they hold, to and fro: what they allow works, and what they
// do not does not. Otherwise a contender without policies might be measured.
func (l *policyLane) govern(ctx context.Context) error {
	if l.policed == nil || !l.policed.Present().Governed() {
		return nil
	}
	var objects []runtime.Object
	for _, policy := range l.policed.Present().ForMeasured(policyPorts(), l.outside()) {
		objects = append(objects, policy)
	}
	if err := l.put(ctx, objects...); err != nil {
		return fmt.Errorf("put policies of %s: %w", l.contender.Name(), err)
	}
	refusing, err := follow.Listen(ctx, l.lab.Place(l.server[result.CrossNode]), netip.AddrPortFrom(l.server[result.CrossNode].Addresses[0], refusedPort), 0)
	if err != nil {
		return err
	}
	defer refusing.Close()
	for begin := time.Now(); ; {
		works, err := l.connects(ctx, echoPort, true)
		if err != nil {
			return err
		}
		leaks, err := l.connects(ctx, refusedPort, false)
		switch {
		case err != nil:
			return err
		case works && !leaks:
			return nil
		case time.Since(begin) < policyPatience:
			continue
		case leaks:
			return fmt.Errorf("policies of %s are not in force after %v: a connection works that none allows", l.contender.Name(), policyPatience)
		}
		return fmt.Errorf("policies of %s after %v: a connection that they allow does not work", l.contender.Name(), policyPatience)
	}
}

// connects says whether the client is answered by the server at a port.
func (l *policyLane) connects(ctx context.Context, port uint16, expected bool) (bool, error) {
	to := netip.AddrPortFrom(l.server[result.CrossNode].Addresses[0], port)
	return truth.Ask(ctx, l.lab.Place(l.client), to, corev1.ProtocolTCP, expected)
}

// sample runs one cell. What goes wrong is in the sample's Error.
func (l *policyLane) sample(ctx context.Context, cell Cell, length time.Duration) result.Sample {
	l.turn++
	return l.lane.sample(ctx, cell, workload.Request{Server: l.serversOf(cell), Procs: cell.Procs, Length: length, Turn: l.turn})
}

// truth adds the cast to the lab, with its policies, and asks all questions.
func (l *policyLane) truth(ctx context.Context) (answers []result.Answer, err error) {
	cast := map[string]*topology.Pod{}
	place := func(name string) topology.Place {
		switch name {
		case truth.NearNode:
			return l.lab.Node(0).Place()
		case truth.FarNode:
			return l.lab.Node(1).Place()
		}
		return l.lab.Place(cast[name])
	}
	address := func(name string) netip.Addr {
		switch name {
		case truth.NearNode:
			return l.lab.Node(0).Addresses[0].Addr()
		case truth.FarNode:
			return l.lab.Node(1).Addresses[0].Addr()
		}
		return cast[name].Addresses[0]
	}
	if err := l.put(ctx, policies.Namespace(truth.Elsewhere, nil)); err != nil {
		return nil, err
	}
	names := []string{truth.NearNode, truth.FarNode}
	for _, p := range truth.Cast() {
		if cast[p.Name], err = l.addPod(ctx, p.Home, p.Pod); err != nil {
			return nil, err
		}
		names = append(names, p.Name)
	}
	for _, name := range names {
		end, err := truth.Listen(ctx, place(name), address(name))
		if err != nil {
			return nil, err
		}
		defer end()
	}
	if err := l.put(ctx, truth.Objects(address)...); err != nil {
		return nil, err
	}
	questions := truth.Questions()
	works, err := truth.Answers(ctx, questions, place, address)
	for i, q := range questions {
		if i >= len(works) {
			break
		}
		answers = append(answers, result.Answer{
			Direction: q.Direction, By: q.By, Case: q.Case, Path: q.Path(), Protocol: string(q.Protocol), From: q.From, To: q.To, Port: int(q.Port),
			Want: q.Want, Works: works[i],
		})
	}
	return slices.Clip(answers), err
}

// close ends everything of the lane, whatever the state it is in.
func (l *policyLane) close() error {
	if l.echo != nil {
		l.echo.Close()
	}
	err := l.lane.close()
	if l.api != nil {
		err = errors.Join(err, l.api.Close())
	}
	return err
}
