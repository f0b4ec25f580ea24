package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// tiny is a plan of a few seconds, with a gate that lets everything pass: the machine of a test is not quiet.
func tiny(t *testing.T, networks ...string) Plan {
	t.Helper()
	testenv.Root(t)
	needTools(t)
	for _, name := range networks {
		c, err := network.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		if u := c.Unsupported(); u != "" {
			testenv.Missing(t, u)
		}
	}
	p, err := Quick(Choice{Networks: networks, Workloads: []string{"tcp_stream_128k", "tcp_rr"}, Rounds: 2, Length: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p.Gate = Gate{Steal: 1, Foreign: 1, Retransmits: 1}
	p.WarmUp, p.Pods, p.Idle, p.MTU, p.Seed = 0, 2, 100*time.Millisecond, 1500, 1
	return p
}

// wantNothingLeft looks for what this process's labs would leave.
func wantNothingLeft(t *testing.T) {
	t.Helper()
	labs, err := testbed.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range labs {
		if strings.HasPrefix(l.Name, strings.TrimSuffix(labName(""), "-")) {
			t.Errorf("lab %s is left", l.Name)
		}
	}
	spaces, err := filepath.Glob("/run/netns/bl-" + labName("") + "*")
	if err != nil || len(spaces) > 0 {
		t.Errorf("namespaces left: %v, %v", spaces, err)
	}
}

func TestRunEndToEnd(t *testing.T) {
	p := tiny(t, "node", "ptp")
	var said bytes.Buffer
	run, err := Run(t.Context(), p, NewProgress(&said, false, p.Estimate()))
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	wantNothingLeft(t)
	if len(run.Rounds) != 2 || len(run.Samples) != 2*3*len(p.Cells) {
		t.Errorf("%d rounds, %d samples", len(run.Rounds), len(run.Samples))
	}
	for _, r := range run.Rounds {
		if got := slices.Sorted(slices.Values(r.Order)); !slices.Equal(got, []string{"node", "node/again", "ptp"}) {
			t.Errorf("round %d: order %v", r.Index, r.Order)
		}
	}
	for _, s := range run.Samples {
		w := p.Cells[slices.IndexFunc(p.Cells, func(c Cell) bool { return c.Workload.Info().Name == s.Workload })].Workload.Info()
		if s.Error != "" || s.Values[w.Metric] <= 0 || s.Seconds < 0.1 || len(s.Command) == 0 {
			t.Errorf("%s %s %s: %v, %q", s.Network, s.Workload, s.Path, s.Values, s.Error)
		}
	}
	if run.Environment.CongestionControl == "" || run.Environment.Tools["netperf"] == "" || run.Environment.Sysctls["net.ipv4.tcp_tw_reuse"] != "1" {
		t.Errorf("environment: %+v", run.Environment)
	}
	found := false
	for _, s := range run.Summary {
		if s.Network == stats.Again && s.Metric == result.Rate && s.Ratio == nil {
			t.Errorf("no A/A ratio in %s", s.Workload)
		}
		found = found || s.Network == "ptp" && s.Workload == "tcp_rr" && s.Metric == result.Rate && s.Ratio != nil && s.N == 2
	}
	if !found {
		t.Error("no summary of ptp")
	}
	i := slices.IndexFunc(run.Footprints, func(f result.Footprint) bool { return f.Network == "ptp" })
	if i < 0 || len(run.Footprints[i].AddMilliseconds) != 2 || len(run.Footprints[i].DelMilliseconds) != 2 {
		t.Errorf("footprints: %+v", run.Footprints)
	}
	if !strings.Contains(said.String(), "2 rounds kept, 0 discarded") {
		t.Errorf("said:\n%s", said.String())
	}
}

// A gate that nothing passes ends the run after the extra rounds, with the samples in the file.
func TestRunWithoutAQuietRound(t *testing.T) {
	p := tiny(t, "node")
	p.Gate.Foreign, p.Rounds, p.ExtraRounds = -1, 1, 1
	var said bytes.Buffer
	run, err := Run(t.Context(), p, NewProgress(&said, false, p.Estimate()))
	if !errors.Is(err, ErrNothing) {
		t.Errorf("%v, want ErrNothing", err)
	}
	wantNothingLeft(t)
	if len(run.Rounds) != 2 || len(run.Samples) == 0 || len(run.Summary) != 0 {
		t.Errorf("%d rounds, %d samples, %d summaries", len(run.Rounds), len(run.Samples), len(run.Summary))
	}
	for _, r := range run.Rounds {
		if !strings.Contains(r.Discarded, "foreign load") {
			t.Errorf("round %d: %q", r.Index, r.Discarded)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	p := tiny(t, "node")
	p.Rounds = 1000
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	var said bytes.Buffer
	run, err := Run(ctx, p, NewProgress(&said, false, p.Estimate()))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
	wantNothingLeft(t)
	if run.Finished.IsZero() {
		t.Error("no end of the run")
	}
}

// broken comes up never.
type broken struct{ network.Network }

func (broken) Name() string { return "broken" }
func (broken) Up(context.Context, *testbed.Lab) error {
	return errors.New("no luck today")
}

// unsupported is not tried.
type unsupported struct{ network.Network }

func (unsupported) Name() string        { return "unsupported" }
func (unsupported) Unsupported() string { return "not on this kernel: luck" }

// What does not work is listed and does not end the run.
func TestRunWithWhatDoesNotWork(t *testing.T) {
	p := tiny(t, "node")
	p.Networks = append(p.Networks, broken{p.Networks[0]}, unsupported{p.Networks[0]})
	p.Rounds = 1
	var said bytes.Buffer
	run, err := Run(t.Context(), p, NewProgress(&said, false, p.Estimate()))
	if err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t)
	reasons := map[string]string{}
	for _, c := range run.Networks {
		reasons[c.Name] = c.Unsupported
	}
	if reasons["node"] != "" || !strings.Contains(reasons["broken"], "no luck today") || reasons["unsupported"] != "not on this kernel: luck" {
		t.Errorf("%q", reasons)
	}

	p.Networks = p.Networks[1:]
	if _, err := Run(t.Context(), p, NewProgress(&said, false, p.Estimate())); !errors.Is(err, ErrNothing) {
		t.Errorf("without any network: %v", err)
	}
}

// A sample that fails is kept with its reason, and the next one works.
func TestSampleThatFails(t *testing.T) {
	p := tiny(t, "node")
	p.Cells = p.Cells[:1]
	l, err := openTestbed(t.Context(), p.Networks[0], p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := l.servers[result.CrossNode].Close(); err != nil {
		t.Fatal(err)
	}
	b := &bench{plan: p, run: newRun(p)}
	if s := b.sample(t.Context(), l, p.Cells[0], p.Length); s.Error == "" || s.Values != nil {
		t.Errorf("without a server: %+v", s)
	}
	if err := l.serve(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if s := b.sample(t.Context(), l, p.Cells[0], p.Length); s.Error != "" || stats.KeyOf(&s).Workload != "tcp_stream_128k" {
		t.Errorf("with a server again: %+v", s)
	}
}

func TestStayOnIsUndone(t *testing.T) {
	if numCPU() < 2 {
		testenv.Missing(t, "needs two CPUs")
	}
	listed := func() string {
		data, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "Cpus_allowed_list:")
		line, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(line)
	}
	before := listed()
	restore, err := stayOn(allowed()[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := listed(); got != fmt.Sprint(allowed()[0]) {
		t.Errorf("pinned to %s", got)
	}
	restore()
	if got := listed(); got != before {
		t.Errorf("%s after, %s before", got, before)
	}
}

// A server that does not start costs its own cells their samples, not the network all of them.
func TestServerThatDoesNotStart(t *testing.T) {
	p := tiny(t, "node")
	p.Cells = append(p.Cells, Cell{noServer{p.Cells[0].Workload}, result.CrossNode, result.OneCore, 1})
	p.Rounds = 1
	var said bytes.Buffer
	run, err := Run(t.Context(), p, NewProgress(&said, false, p.Estimate()))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Samples {
		if want := s.Workload == "no_server"; (s.Error == "out of order") != want || (s.Error != "") != want {
			t.Errorf("%s: %q", s.Workload, s.Error)
		}
	}
}

type noServer struct{ workload.Workload }

func (noServer) Info() result.Workload { return result.Workload{Name: "no_server"} }
func (noServer) Serve(context.Context, *workload.Servers, int) error {
	return errors.New("out of order")
}

// A network that comes up while the run is interrupted is taken down with the others.
func TestInterruptedWhileComingUp(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	b := &bench{progress: NewProgress(t.Output(), false, 0), run: &result.Run{}}
	takes := func(network.Network) time.Duration { return 0 }
	err := b.openEach(ctx, []network.Network{network.Node{}}, takes, func(network.Network) (*Testbed, error) {
		interrupt()
		return &Testbed{}, nil
	})
	if !errors.Is(err, context.Canceled) || len(b.testbeds) != 1 {
		t.Errorf("%d testbeds to be closed, %v", len(b.testbeds), err)
	}
}
