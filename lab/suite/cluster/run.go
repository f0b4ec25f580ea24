package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/worker"
)

// Plan is what the run is made by.
func (s *Suite) Plan() *round.Schedule { return &s.Schedule }

// Up creates the pods and Services, finds out what the cluster is, and starts the servers.
func (s *Suite) Up(ctx context.Context, r *round.Bench) (field round.Field, err error) {
	s.progress, s.record = r.Progress, r.Result
	s.cluster = &result.Cluster{Image: s.Image, CNI: unknown, KubeProxy: unknown}
	s.record.Cluster = s.cluster
	s.record.Settings.Gate += "; on a cluster, foreign load is what the two nodes do during a quiet moment before each turn"
	if s.cluster.Kubernetes, err = s.API.Version(ctx); err != nil {
		return field, err
	}
	if err := s.choose(ctx); err != nil {
		return field, err
	}
	if s.client.Name == s.server.Name {
		s.leaveOutCrossNode()
	}
	s.progress.Step("creating %d pods", len(s.roles()))
	if err := s.create(ctx); err != nil {
		return field, err
	}
	s.progress.Step("namespace %s: client on node %s, server on node %s", s.namespace, s.client.Name, s.server.Name)
	s.progress.Advance(bringUp)
	for _, step := range []func(context.Context) error{s.describe, s.pin, s.listen, s.findRoutes} {
		if err := step(ctx); err != nil {
			return field, err
		}
	}
	for _, s := range s.subjects {
		field.Subjects = append(field.Subjects, s)
	}
	field.Noise = &noise{nodes: s.nodeSessions(), progress: s.progress}
	return field, nil
}

// After measures nothing.
func (*Suite) After(context.Context, *round.Bench) error { return nil }

// Down ends the workers and deletes what was created, whatever its state, and waits until it is gone.
func (s *Suite) Down(ctx context.Context, _ *round.Bench) error {
	return s.down(ctx)
}

// leaveOutCrossNode drops the cells that a cluster with one node cannot have, and with them the pods at their far end:
// two servers in the network of one node would want the same ports.
func (s *Suite) leaveOutCrossNode() {
	s.Cells = slices.DeleteFunc(slices.Clone(s.Cells), func(c round.Cell) bool { return c.Path == result.CrossNode })
	s.progress.Note("client and server are on the same node: there is no cross-node path")
}

// describe finds out what the cluster is.
func (s *Suite) describe(ctx context.Context) error {
	client, err := s.facts(ctx, s.onNode(false))
	if err != nil {
		return err
	}
	server, err := s.facts(ctx, s.onNode(true))
	if err != nil {
		return err
	}
	c := s.cluster
	c.Client, c.Server = describeNode(s.client), describeNode(s.server)
	c.Client.CPU, c.Server.CPU = client.Environment.CPU, server.Environment.CPU
	c.SharedKernel = s.client.Name != s.server.Name && client.Boot != "" && client.Boot == server.Boot
	daemonSets := s.daemonSets(ctx)
	c.CNI, c.Evidence = detectNetwork(daemonSets, []corev1.Node{s.client, s.server}, client.Devices)
	var config corev1.ConfigMap
	if client.Proxy == "" {
		// Without it, or without the right to read it, the mode stays unknown.
		_ = s.API.Get(ctx, &config, "kube-system", "kube-proxy")
	}
	c.KubeProxy, c.KubeProxySource = detectProxy(s.client.Name, client.Proxy, client.NoProxy, daemonSets, config.Data)
	c.CPUTimes = s.cpuTimes(client, server)
	e := client.Environment
	e.Hostname, e.Distribution = s.client.Name, s.client.Status.NodeInfo.OSImage
	s.record.Environment = e
	return nil
}

// pin chooses the CPU of both ends where they are to share one: the second, because the first handles the interrupts of
// most machines.
func (s *Suite) pin(context.Context) error {
	if !s.oneCore() {
		return nil
	}
	if s.client.Name != s.server.Name && !s.cluster.SharedKernel {
		return fmt.Errorf("placement %s: nodes %s and %s run on kernels of their own, and share no CPU", result.OneCore, s.client.Name, s.server.Name)
	}
	cpu := min(1, s.record.Environment.CPUs-1)
	s.cpu = &cpu
	s.cluster.CPUTimes = fmt.Sprintf("CPU %d, on which both ends are", cpu)
	return nil
}

// cpuTimes says what the CPU times of samples are of.
func (s *Suite) cpuTimes(client, server *worker.Facts) string {
	switch {
	case client.Environment.CPUs == 0 || server.Environment.CPUs == 0:
		return "none: /proc/stat cannot be read in the pods"
	case s.cluster.SharedKernel:
		return "all CPUs of the machine that both nodes share, whoever used them"
	}
	return "all CPUs of the nodes of both ends, whoever used them"
}

// daemonSets are those of the cluster, or of kube-system where no more may be seen, or none.
func (s *Suite) daemonSets(ctx context.Context) []appsv1.DaemonSet {
	var list appsv1.DaemonSetList
	err := s.API.List(ctx, &list, "", "")
	if isForbidden(err) {
		err = s.API.List(ctx, &list, "kube-system", "")
	}
	if err != nil {
		s.progress.Note("what networks the cluster has shows on its nodes only: %v", err)
	}
	return list.Items
}

// onNode is the pod that knows most of a node: one in its network, where there is one.
func (s *Suite) onNode(server bool) role {
	best := role("")
	for _, r := range s.roles() {
		if r.onServer() == server && (best == "" || r.hosted() && !best.hosted()) {
			best = r
		}
	}
	if best == "" { // there is no server's node without a cross-node path
		return s.onNode(false)
	}
	return best
}

func (s *Suite) facts(ctx context.Context, r role) (*worker.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := s.sessions[r].call(ctx, worker.Request{Facts: &worker.Ask{Proxy: r.hosted()}})
	if err != nil {
		return nil, fmt.Errorf("ask pod %s: %w", s.pods[r].Name, err)
	}
	f := reply.Facts
	if f.Version != worker.Version {
		return nil, fmt.Errorf("image %s on node %s is of another version than this program: make image-bench, and import it on the nodes", s.Image, s.node(r).Name)
	}
	if !r.hosted() {
		f.Devices, f.NoProxy = nil, "no pod of this run is in the node's network" // the pod's devices are not the node's
	}
	return f, nil
}

// nodeSessions are one worker for each set of CPUs.
func (s *Suite) nodeSessions() []*session {
	list := []*session{s.sessions[s.onNode(false)]}
	if s.client.Name != s.server.Name && !s.cluster.SharedKernel {
		list = append(list, s.sessions[s.onNode(true)])
	}
	return list
}

// findRoutes tries every route, starts the servers and makes the subjects.
func (s *Suite) findRoutes(ctx context.Context) error {
	for _, c := range s.networks {
		e := &subject{network: c, routes: map[result.Path]*route{}}
		record := result.Network{Name: c.Name, Description: c.Description, Facts: map[string]string{}}
		reached := false
		for _, path := range s.paths() {
			s.progress.Step("looking at the route %s, %s", c.Name, path)
			w, err := s.newRoute(ctx, c, path)
			if err != nil {
				return err
			}
			e.routes[path] = w
			s.cluster.Routes = append(s.cluster.Routes, w.record)
			routeFacts(record.Facts, w.record)
			s.progress.Advance(perRoute)
			if w.record.Error != "" {
				s.progress.Note("%s, %s: %s", c.Name, path, w.record.Error)
				continue
			}
			reached = true
			if c.Name == mtuNetwork && (s.record.Settings.MTU == 0 || path == result.CrossNode) {
				s.record.Settings.MTU = w.record.MTU
			}
		}
		if !reached {
			record.Unsupported = "no route: " + s.cluster.Routes[len(s.cluster.Routes)-1].Error
		} else {
			s.subjects = append(s.subjects, e)
		}
		s.record.Networks = append(s.record.Networks, record)
	}
	return nil
}

// mtuNetwork is whose cross-node MTU is that of the run.
const mtuNetwork = "pod"

func (s *Suite) newRoute(ctx context.Context, c Network, path result.Path) (*route, error) {
	server := c.servers[path]
	w := &route{
		record: result.ClusterRoute{Network: c.Name, Path: path}, client: s.sessions[c.client], server: s.sessions[server],
		cpu:      s.cpu,
		oneCPUs:  s.cluster.SharedKernel || path == result.SameNode,
		unserved: map[string]error{}, turns: map[string]int{},
	}
	end, err := s.reach(c, path)
	if err != nil {
		w.record.Error = err.Error()
		return w, nil
	}
	w.end, w.record.Target = end, end.Address.String()
	if err := w.find(ctx); err != nil || w.record.Error != "" {
		return w, err
	}
	own, err := s.ownEnd(server)
	if err != nil {
		return w, err
	}
	for _, cell := range s.Cells {
		if cell.Path != path {
			continue
		}
		name := cell.Workload.Info().Name
		if err := w.server.serve(ctx, worker.Serve{End: own, Workload: name, Procs: cell.Procs, CPU: s.cpu}); err != nil {
			if ctx.Err() != nil {
				return w, ctx.Err()
			}
			w.unserved[name] = err
		}
	}
	return w, nil
}

// routeFacts words what a reader needs to weigh a route.
func routeFacts(facts map[string]string, w result.ClusterRoute) {
	at := " (" + string(w.Path) + ")"
	if w.Error != "" {
		facts["no route"+at] = w.Error
		return
	}
	facts["path MTU"+at] = strconv.Itoa(w.MTU)
	facts["TCP segment"+at] = strconv.Itoa(w.Segment)
	facts["congestion control"+at] = w.Congestion
	facts["target"+at] = w.Target
	facts["server sees"+at] = "the client's own address"
	if w.ServerSees != w.Source {
		facts["server sees"+at] = w.ServerSees + " instead of " + w.Source
	}
}
