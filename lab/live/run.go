package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/measure"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/worker"
)

// bench is a run under way.
type bench struct {
	*Testbed
	record   *result.Run
	cluster  *result.Cluster
	subjects []*subject
}

// Run carries out a plan. The result is never nil: what was measured before an error, or before the context ended, is
// in it, with its summary. Nothing that was created is left, unless the error says so.
func Run(ctx context.Context, api API, p Plan, progress *measure.Progress) (run *result.Run, err error) {
	b := &bench{
		Testbed: newTestbed(api, p),
		record:  measure.NewRun(p.Schedule),
		cluster: &result.Cluster{Image: p.Image, CNI: unknown, KubeProxy: unknown},
	}
	b.progress = progress
	b.record.Cluster = b.cluster
	b.record.Settings.Gate += "; on a cluster, foreign load is what the two nodes do during a quiet moment before each turn"
	defer func() { measure.Finish(b.record) }()
	if err := p.Validate(); err != nil {
		return b.record, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.Limit(), fmt.Errorf("no end after %v", p.Limit().Round(time.Second)))
	defer cancel()
	defer func() {
		progress.Status("deleting what was created")
		err = errors.Join(err, b.down(ctx))
		progress.Clear()
	}()
	if err := b.measure(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return b.record, err
	}
	return b.record, nil
}

func (b *bench) measure(ctx context.Context) error {
	var err error
	if b.cluster.Kubernetes, err = b.api.Version(ctx); err != nil {
		return err
	}
	if err := b.choose(ctx); err != nil {
		return err
	}
	if b.client.Name == b.server.Name {
		b.leaveOutCrossNode()
	}
	b.progress.Step("creating %d pods", len(b.plan.roles()))
	if err := b.up(ctx); err != nil {
		return err
	}
	b.progress.Step("namespace %s: client on node %s, server on node %s", b.namespace, b.client.Name, b.server.Name)
	b.progress.Advance(bringUp)
	if err := b.describe(ctx); err != nil {
		return err
	}
	if err := b.pin(); err != nil {
		return err
	}
	if err := b.listen(ctx); err != nil {
		return err
	}
	if err := b.findWays(ctx); err != nil {
		return err
	}
	var subjects []measure.Subject
	for _, e := range b.subjects {
		subjects = append(subjects, e)
	}
	if len(subjects) == 0 {
		return fmt.Errorf("%w: no network came up", measure.ErrNothing)
	}
	watched := &noise{nodes: b.nodeSessions(), progress: b.progress}
	if err := b.plan.Schedule.Make(ctx, subjects, watched, b.record, b.progress); err != nil {
		return err
	}
	if measure.Kept(b.record) == 0 {
		return fmt.Errorf("%w: the gate discarded all %d rounds", measure.ErrNothing, len(b.record.Rounds))
	}
	return nil
}

// leaveOutCrossNode drops the cells that a cluster with one node cannot have, and with them the pods at their far end: two
// servers in the network of one node would want the same ports.
func (b *bench) leaveOutCrossNode() {
	b.plan.Cells = slices.DeleteFunc(slices.Clone(b.plan.Cells), func(c measure.Cell) bool { return c.Path == result.CrossNode })
	b.progress.Note("client and server are on the same node: there is no cross-node path")
}

// describe finds out what the cluster is.
func (b *bench) describe(ctx context.Context) error {
	client, err := b.facts(ctx, b.onNode(false))
	if err != nil {
		return err
	}
	server, err := b.facts(ctx, b.onNode(true))
	if err != nil {
		return err
	}
	c := b.cluster
	c.Client, c.Server = describeNode(b.client), describeNode(b.server)
	c.Client.CPU, c.Server.CPU = client.Environment.CPU, server.Environment.CPU
	c.SharedKernel = b.client.Name != b.server.Name && client.Boot != "" && client.Boot == server.Boot
	daemonSets := b.daemonSets(ctx)
	c.CNI, c.Evidence = detectNetwork(daemonSets, []corev1.Node{b.client, b.server}, client.Devices)
	var config map[string]string
	if client.Proxy == "" {
		// Who may not read it, or has none, is told by what is missing then.
		config, _ = b.api.ConfigMap(ctx, "kube-system", "kube-proxy")
	}
	c.KubeProxy, c.KubeProxySource = detectProxy(b.client.Name, client.Proxy, client.NoProxy, daemonSets, config)
	c.CPUTimes = b.cpuTimes(client, server)
	e := client.Environment
	e.Hostname, e.Distribution = b.client.Name, b.client.Status.NodeInfo.OSImage
	b.record.Environment = e
	return nil
}

// pin chooses the CPU of both ends where they are to share one: the second, because the first handles the interrupts of
// most machines.
func (b *bench) pin() error {
	if !b.plan.oneCore() {
		return nil
	}
	if b.client.Name != b.server.Name && !b.cluster.SharedKernel {
		return fmt.Errorf("placement %s: nodes %s and %s run on kernels of their own, and share no CPU", result.OneCore, b.client.Name, b.server.Name)
	}
	cpu := min(1, b.record.Environment.CPUs-1)
	b.cpu = &cpu
	b.cluster.CPUTimes = fmt.Sprintf("CPU %d, on which both ends are", cpu)
	return nil
}

// cpuTimes says what the CPU times of samples are of.
func (b *bench) cpuTimes(client, server *worker.Facts) string {
	switch {
	case client.Environment.CPUs == 0 || server.Environment.CPUs == 0:
		return "none: /proc/stat cannot be read in the pods"
	case b.cluster.SharedKernel:
		return "all CPUs of the machine that both nodes share, whoever used them"
	}
	return "all CPUs of the nodes of both ends, whoever used them"
}

// daemonSets are those of the cluster, or of kube-system where no more may be seen, or none.
func (b *bench) daemonSets(ctx context.Context) []appsv1.DaemonSet {
	list, err := b.api.DaemonSets(ctx, "")
	if isForbidden(err) {
		list, err = b.api.DaemonSets(ctx, "kube-system")
	}
	if err != nil {
		b.progress.Note("what networks the cluster has shows on its nodes only: %v", err)
	}
	return list
}

// onNode is the pod that knows most of a node: one in its network, where there is one.
func (b *bench) onNode(server bool) role {
	best := role("")
	for _, r := range b.plan.roles() {
		if r.onServer() == server && (best == "" || r.hosted() && !best.hosted()) {
			best = r
		}
	}
	if best == "" { // there is no server's node without a cross-node path
		return b.onNode(false)
	}
	return best
}

func (b *bench) facts(ctx context.Context, r role) (*worker.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := b.sessions[r].call(ctx, worker.Request{Facts: &worker.Ask{Proxy: r.hosted()}})
	if err != nil {
		return nil, fmt.Errorf("ask pod %s: %w", b.pods[r].Name, err)
	}
	f := reply.Facts
	if f.Version != worker.Version {
		return nil, fmt.Errorf("image %s on node %s is of another version than this program: make image-bench, and import it on the nodes", b.plan.Image, b.node(r).Name)
	}
	if !r.hosted() {
		f.Devices, f.NoProxy = nil, "no pod of this run is in the node's network" // the pod's devices are not the node's
	}
	return f, nil
}

// nodeSessions are one worker for each set of CPUs.
func (b *bench) nodeSessions() []*session {
	list := []*session{b.sessions[b.onNode(false)]}
	if b.client.Name != b.server.Name && !b.cluster.SharedKernel {
		list = append(list, b.sessions[b.onNode(true)])
	}
	return list
}

// findWays looks at every way, starts the servers and makes the subjects.
func (b *bench) findWays(ctx context.Context) error {
	for _, c := range b.plan.Networks {
		e := &subject{network: c, ways: map[result.Path]*way{}}
		record := result.Network{Name: c.Name, Description: c.Description, Facts: map[string]string{}}
		reached := false
		for _, path := range b.plan.paths() {
			b.progress.Step("looking at the way %s, %s", c.Name, path)
			w, err := b.newWay(ctx, c, path)
			if err != nil {
				return err
			}
			e.ways[path] = w
			b.cluster.Routes = append(b.cluster.Routes, w.record)
			wayFacts(record.Facts, w.record)
			b.progress.Advance(perWay)
			if w.record.Error != "" {
				b.progress.Note("%s, %s: %s", c.Name, path, w.record.Error)
				continue
			}
			reached = true
			if c.Name == mtuNetwork && (b.record.Settings.MTU == 0 || path == result.CrossNode) {
				b.record.Settings.MTU = w.record.MTU
			}
		}
		if !reached {
			record.Unsupported = "no way: " + b.cluster.Routes[len(b.cluster.Routes)-1].Error
		} else {
			b.subjects = append(b.subjects, e)
		}
		b.record.Networks = append(b.record.Networks, record)
	}
	return nil
}

// mtuNetwork is whose cross-node MTU is that of the run.
const mtuNetwork = "pod"

func (b *bench) newWay(ctx context.Context, c Network, path result.Path) (*way, error) {
	server := c.servers[path]
	w := &way{
		record: result.ClusterRoute{Network: c.Name, Path: path}, client: b.sessions[c.client], server: b.sessions[server],
		cpu:      b.cpu,
		oneCPUs:  b.cluster.SharedKernel || path == result.SameNode,
		unserved: map[string]error{}, turns: map[string]int{},
	}
	end, err := b.reach(c, path)
	if err != nil {
		w.record.Error = err.Error()
		return w, nil
	}
	w.end, w.record.Target = end, end.Address.String()
	if err := w.find(ctx); err != nil || w.record.Error != "" {
		return w, err
	}
	own, err := b.ownEnd(server)
	if err != nil {
		return w, err
	}
	for _, cell := range b.plan.Cells {
		if cell.Path != path {
			continue
		}
		name := cell.Workload.Info().Name
		if err := w.server.serve(ctx, worker.Serve{End: own, Workload: name, Procs: cell.Procs, CPU: b.cpu}); err != nil {
			if ctx.Err() != nil {
				return w, ctx.Err()
			}
			w.unserved[name] = err
		}
	}
	return w, nil
}

// wayFacts words what a reader needs to judge a way.
func wayFacts(facts map[string]string, w result.ClusterRoute) {
	at := " (" + string(w.Path) + ")"
	if w.Error != "" {
		facts["no way"+at] = w.Error
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
