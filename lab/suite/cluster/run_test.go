package cluster

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/suite/internal/suitetest"
	"github.com/beeline-cni/beeline/lab/workload"
)

// tiny is a plan of a few seconds, with a gate that lets everything pass: the machine of a test is not quiet.
func tiny(t *testing.T, workloads ...string) *Suite {
	t.Helper()
	for _, w := range workload.All() {
		if m := w.Missing(); m != "" {
			testenv.Missing(t, m)
		}
	}
	p, err := New(round.Options{Workloads: workloads, Rounds: 2, Length: 100 * time.Millisecond, Paths: []result.Path{result.CrossNode, result.SameNode}}, defaults)
	if err != nil {
		t.Fatal(err)
	}
	p.Gate = suitetest.OpenGate()
	p.WarmUp = 0
	return p
}

func run(t *testing.T, f API, p *Suite) (*result.Run, string, error) {
	t.Helper()
	var said bytes.Buffer
	p.API = f
	r, err := round.Run(t.Context(), p, round.NewProgress(&said, p.Estimate()))
	return r, said.String(), err
}

func TestRunEndToEnd(t *testing.T) {
	f := newNetwork(t)
	p := tiny(t, "tcp_rr", "tcp_crr")
	r, said, err := run(t, f, p)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	f.wantNothingLeft(t)
	if len(r.Rounds) != 2 || len(r.Samples) != 2*5*4 {
		t.Errorf("%d rounds, %d samples", len(r.Rounds), len(r.Samples))
	}
	for _, one := range r.Rounds {
		if got := slices.Sorted(slices.Values(one.Order)); !slices.Equal(got, []string{"node", "node/again", "nodeport", "pod", "service"}) {
			t.Errorf("round %d: order %v", one.Index, got)
		}
	}
	for _, s := range r.Samples {
		if s.Error != "" || s.Values[result.Rate] <= 0 || s.Seconds < 0.1 || s.CPU.User+s.CPU.System+s.CPU.Softirq+s.CPU.Idle <= 0 || s.Placement != result.Free {
			t.Errorf("%s %s %s: %+v", s.Network, s.Workload, s.Path, s)
		}
	}
	// Connections by the Service and by the pod's address are never the same ones to the server, and each sample's are
	// new.
	data := map[string][]string{}
	for _, s := range r.Samples {
		if s.Workload == "tcp_crr" && s.Path == result.CrossNode {
			port := s.Command[slices.Index(s.Command, "-P")+1]
			for network, used := range data {
				pair := []string{network, s.Network}
				if slices.Contains(used, port) && (network == s.Network || slices.Contains(pair, "pod") && slices.Contains(pair, "service")) {
					t.Errorf("%s uses data port %s of %s", s.Network, port, network)
				}
			}
			data[s.Network] = append(data[s.Network], port)
		}
	}
	c := r.Cluster
	if c.Kubernetes != "v1.99.0" || c.Client.Name != "n1" || c.Server.Name != "n2" || !c.SharedKernel || len(c.Routes) != 8 || c.KubeProxy != "ipvs" {
		t.Errorf("cluster: %+v", c)
	}
	for _, w := range c.Routes {
		if want := map[result.Path]int{result.CrossNode: 1400, result.SameNode: 32820}[w.Path]; w.MTU < want || w.MTU > want+4 || w.ServerSees != w.Source {
			t.Errorf("%+v, want MTU %d", w, want)
		}
	}
	if r.Settings.MTU < 1400 || r.Settings.MTU > 1404 || r.Environment.Kernel == "" || r.Environment.Hostname != "n1" {
		t.Errorf("settings %+v, environment %+v", r.Settings, r.Environment)
	}
	if !slices.ContainsFunc(r.Summary, func(s result.Summary) bool {
		return s.Network == "service" && s.Metric == result.Rate && s.Path == result.CrossNode && s.Ratio != nil
	}) || !slices.ContainsFunc(r.Summary, func(s result.Summary) bool { return s.Network == stats.Again && s.Ratio != nil }) {
		t.Error("no ratio of service, or none of the baseline to itself")
	}
}

// Nodes that share a kernel can have both ends on one CPU, as in a lab; others cannot.
func TestRunOnOneCore(t *testing.T) {
	f := newNetwork(t)
	p := tiny(t, "tcp_rr")
	for i := range p.Cells {
		p.Cells[i].Placement = result.OneCore
	}
	p.Rounds, p.Length = 1, 500*time.Millisecond
	r, said, err := run(t, f, p)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	f.wantNothingLeft(t)
	for _, s := range r.Samples {
		// Of one CPU no more time can pass than the traffic lasted and until its end was noticed; of two it would be
		// twice as much.
		if all := s.CPU.User + s.CPU.System + s.CPU.Softirq + s.CPU.Steal + s.CPU.Idle; s.Error != "" || all <= 0 || all > 1.6*s.Seconds {
			t.Errorf("%s %s: %+v", s.Network, s.Path, s)
		}
	}
	p.client, p.server, p.cluster = f.nodes[0], f.nodes[1], &result.Cluster{}
	if err := p.pin(t.Context()); err == nil || !strings.Contains(err.Error(), "share no CPU") {
		t.Errorf("nodes with kernels of their own: %v", err)
	}
}

// In a namespace that was given, a run deletes what it created and leaves the namespace.
func TestRunInGivenNamespace(t *testing.T) {
	f := newNetwork(t)
	f.deny = func(request string) error {
		if strings.Contains(request, "namespace") || request == "daemonsets " || request == "configmap" {
			return forbidden(request)
		}
		return nil
	}
	p := tiny(t, "udp_rr")
	p.Namespace, p.Rounds = "given", 1
	r, said, err := run(t, f, p)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	f.wantNothingLeft(t)
	if len(r.Samples) == 0 || r.Cluster.KubeProxy != "none" || r.Cluster.CNI != unknown {
		t.Errorf("%d samples, %+v", len(r.Samples), r.Cluster)
	}
}

func TestRunThatIsInterrupted(t *testing.T) {
	f := newNetwork(t)
	p := tiny(t, "tcp_rr")
	p.Rounds = 1000
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := listener{until: "round 1 of 1000 done", then: cancel}
	p.API = f
	r, err := round.Run(ctx, p, round.NewProgress(&said, p.Estimate()))
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrLeft) {
		t.Errorf("%v, want the context's error", err)
	}
	f.wantNothingLeft(t)
	if len(r.Rounds) != 2 || r.Rounds[0].Discarded != "" || r.Rounds[1].Discarded != "interrupted" || r.Finished.IsZero() {
		t.Errorf("%d rounds\n%s", len(r.Rounds), said.String())
	}
}

// listener does something once a text is said.
type listener struct {
	bytes.Buffer
	until string
	then  func()
}

func (l *listener) Write(said []byte) (int, error) {
	if bytes.Contains(said, []byte(l.until)) {
		l.then()
	}
	return l.Buffer.Write(said)
}

// A worker that is gone costs one sample.
func TestRunSurvivesABrokenStream(t *testing.T) {
	f := newNetwork(t)
	p := tiny(t, "tcp_rr")
	p.networks = p.networks[:2]
	b := p
	b.API, b.record, b.cluster = f, &result.Run{}, &result.Cluster{}
	defer func() {
		if err := b.down(t.Context()); err != nil {
			t.Error(err)
		}
		f.wantNothingLeft(t)
	}()
	if err := errors.Join(b.choose(t.Context()), b.create(t.Context()), b.describe(t.Context()), b.listen(t.Context()), b.findRoutes(t.Context())); err != nil {
		t.Fatal(err)
	}
	cell := b.Cells[0]
	for _, end := range []role{podClient, podFar} {
		e := b.subjects[1]
		if s := e.Sample(t.Context(), cell, 100*time.Millisecond); s.Error != "" {
			t.Fatal(s.Error)
		}
		_ = b.sessions[end].conn.Close()
		failed := 0
		for range 3 {
			if s := e.Sample(t.Context(), cell, 100*time.Millisecond); s.Error != "" {
				failed++
			}
		}
		if failed > 1 {
			t.Errorf("without the worker of %s, %d samples failed", end, failed)
		}
	}
}

func TestRunWithoutImage(t *testing.T) {
	f := newFake()
	f.breakPod = func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}}
	}
	_, _, err := run(t, f, tiny(t, "tcp_rr"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, advice := range []string{DefaultImage, "make image-bench", "--image", "not found"} {
		if !strings.Contains(err.Error(), advice) {
			t.Errorf("%q does not say %q", err, advice)
		}
	}
	f.wantNothingLeft(t)
}

func TestRunThatMayNot(t *testing.T) {
	f := newFake()
	f.deny = func(request string) error { return forbidden(request) }
	for _, request := range []string{"version", "nodes", "create namespace", "create pod"} {
		f.deny = func(r string) error {
			if r == request {
				return forbidden(r)
			}
			return nil
		}
		_, _, err := run(t, f, tiny(t, "tcp_rr"))
		if !isForbidden(err) || errors.Is(err, ErrLeft) {
			t.Errorf("%s: %v", request, err)
		}
		if strings.HasPrefix(request, "create") && !strings.Contains(err.Error(), "bench-rbac.yaml") {
			t.Errorf("%s: %v does not say which rights it needs", request, err)
		}
		f.wantNothingLeft(t)
	}
}

func TestLeftoversAreFoundAndRemoved(t *testing.T) {
	f := newFake()
	crashed := newNamespace("0123abcd")
	prepared := newNamespace("")
	prepared.Name = "beeline-bench"
	for _, n := range []*corev1.Namespace{crashed, prepared} {
		if err := f.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	left, err := Leftovers(t.Context(), f, "")
	if err != nil || len(left) != 1 || left[0].Namespace != crashed.Name || !strings.Contains(left[0].String(), crashed.Name) {
		t.Fatalf("%v, %v", left, err)
	}
	if err := Remove(t.Context(), f, ""); err != nil {
		t.Fatal(err)
	}
	if _, there := f.spaces[crashed.Name]; there || len(f.spaces) != 1 {
		t.Errorf("namespaces %v", f.spaces)
	}

	if left, err := Leftovers(t.Context(), f, "given"); err != nil || len(left) != 0 {
		t.Errorf("in an empty namespace: %v, %v", left, err)
	}
	if err := f.Create(t.Context(), newPod("given", "0123abcd", podFar, "n2", Options{}, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := f.Create(t.Context(), newService("given", "0123abcd", podFar, false, ports{})); err != nil {
		t.Fatal(err)
	}
	left, err = Leftovers(t.Context(), f, "given")
	if err != nil || len(left) != 1 || left[0].Objects != 2 {
		t.Fatalf("%v, %v", left, err)
	}
	if err := Remove(t.Context(), f, "given"); err != nil || len(f.pods)+len(f.services) != 0 {
		t.Errorf("%v, %d pods, %d services", err, len(f.pods), len(f.services))
	}
}

// The error for what was not deleted names the command that removes it.
func TestRunThatCannotClean(t *testing.T) {
	f := newFake()
	f.stuck = true
	b := tiny(t, "tcp_rr")
	b.API = f
	b.namespace = newNamespace(b.run).Name
	if err := f.Create(t.Context(), newNamespace(b.run)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := b.remove(ctx); !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "--clean") {
		t.Errorf("%v", err)
	}
}
