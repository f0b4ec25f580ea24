package network

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/suite/internal/suitetest"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// tiny is a plan of a few seconds, with a gate that lets everything pass: the machine of a test is not quiet.
func tiny(t *testing.T, networks ...string) *Suite {
	t.Helper()
	testenv.Root(t)
	suitetest.NeedTools(t)
	for _, name := range networks {
		c, err := network.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		if u := c.Unsupported(); u != "" {
			testenv.Missing(t, u)
		}
	}
	p, err := New(round.Options{Networks: networks, Workloads: []string{"tcp_stream_128k", "tcp_rr"}, Rounds: 2, Length: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p.Gate = suitetest.OpenGate()
	p.WarmUp, p.Pods, p.Idle, p.MTU, p.Seed = 0, 2, 100*time.Millisecond, 1500, 1
	return p
}

func TestRunEndToEnd(t *testing.T) {
	p := tiny(t, "node", "ptp")
	var said bytes.Buffer
	run, err := round.Run(t.Context(), p, round.NewProgress(&said, p.Estimate()))
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	suitetest.NothingLeft(t)
	if len(run.Rounds) != 2 || len(run.Samples) != 2*3*len(p.Cells) {
		t.Errorf("%d rounds, %d samples", len(run.Rounds), len(run.Samples))
	}
	for _, r := range run.Rounds {
		if got := slices.Sorted(slices.Values(r.Order)); !slices.Equal(got, []string{"node", "node/again", "ptp"}) {
			t.Errorf("round %d: order %v", r.Index, r.Order)
		}
	}
	for _, s := range run.Samples {
		w := p.Cells[slices.IndexFunc(p.Cells, func(c round.Cell) bool { return c.Workload.Info().Name == s.Workload })].Workload.Info()
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
	if !strings.Contains(said.String(), "round 2 of 2 done") {
		t.Errorf("said:\n%s", said.String())
	}
}

// binaries builds this project's own binaries, unless BEELINE_BIN names some.
func binaries(t *testing.T) {
	t.Helper()
	testenv.Root(t)
	if os.Getenv("BEELINE_BIN") != "" {
		return
	}
	if _, err := exec.LookPath("go"); err != nil {
		testenv.Missing(t, err.Error())
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../../../cmd/beeline-agent", "../../../cmd/beeline-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build binaries: %v\n%s", err, said)
	}
	t.Setenv("BEELINE_BIN", dir)
}

// Of a network with IPPools, ADD is timed with and without probes.
func TestFootprintOfPools(t *testing.T) {
	binaries(t)
	p := tiny(t, "beeline-macvlan")
	p.Cells, p.Rounds = p.Cells[:1], 1
	var said bytes.Buffer
	run, err := round.Run(t.Context(), p, round.NewProgress(&said, p.Estimate()))
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	suitetest.NothingLeft(t)
	if len(run.Footprints) != 1 {
		t.Fatalf("footprints: %+v\n%s", run.Footprints, said.String())
	}
	f := run.Footprints[0]
	if len(f.AddMilliseconds) != 2 || len(f.DelMilliseconds) != 2 || len(f.ProbedAddMilliseconds) != 2 || f.Pods != 4 {
		t.Errorf("%+v\n%s", f, said.String())
	}
	if slices.Min(f.ProbedAddMilliseconds) < 250 {
		t.Errorf("probes do not take their time: %v", f.ProbedAddMilliseconds)
	}
}

// A gate that nothing passes ends the run after the extra rounds, with the samples in the file.
func TestRunWithoutAQuietRound(t *testing.T) {
	p := tiny(t, "node")
	p.Gate.Foreign, p.Rounds, p.ExtraRounds = -1, 1, 1
	var said bytes.Buffer
	run, err := round.Run(t.Context(), p, round.NewProgress(&said, p.Estimate()))
	if !errors.Is(err, round.ErrNothing) {
		t.Errorf("%v, want ErrNothing", err)
	}
	suitetest.NothingLeft(t)
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
	run, err := round.Run(ctx, p, round.NewProgress(&said, p.Estimate()))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
	suitetest.NothingLeft(t)
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
	run, err := round.Run(t.Context(), p, round.NewProgress(&said, p.Estimate()))
	if err != nil {
		t.Fatal(err)
	}
	suitetest.NothingLeft(t)
	reasons := map[string]string{}
	for _, c := range run.Networks {
		reasons[c.Name] = c.Unsupported
	}
	if reasons["node"] != "" || !strings.Contains(reasons["broken"], "no luck today") || reasons["unsupported"] != "not on this kernel: luck" {
		t.Errorf("%q", reasons)
	}

	p.Networks = p.Networks[1:]
	if _, err := round.Run(t.Context(), p, round.NewProgress(&said, p.Estimate())); !errors.Is(err, round.ErrNothing) {
		t.Errorf("without any network: %v", err)
	}
}

// A sample that fails is kept with its reason, and the next one works.
func TestSampleThatFails(t *testing.T) {
	p := tiny(t, "node")
	p.Cells = p.Cells[:1]
	m, err := p.open(t.Context(), p.Networks[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := m.Servers[result.CrossNode].Close(); err != nil {
		t.Fatal(err)
	}
	if s := m.Sample(t.Context(), p.Cells[0], p.Length); s.Error == "" || s.Values != nil {
		t.Errorf("without a server: %+v", s)
	}
	if err := m.Serve(t.Context(), p.Cells, workload.UsualPorts, false); err != nil {
		t.Fatal(err)
	}
	if s := m.Sample(t.Context(), p.Cells[0], p.Length); s.Error != "" || stats.KeyOf(&s).Workload != "tcp_stream_128k" {
		t.Errorf("with a server again: %+v", s)
	}
}

// A server that does not start costs its own cells their samples, not the network all of them.
func TestServerThatDoesNotStart(t *testing.T) {
	p := tiny(t, "node")
	p.Cells = append(p.Cells, round.Cell{Workload: noServer{p.Cells[0].Workload}, Path: result.CrossNode, Placement: result.OneCore, Procs: 1})
	p.Rounds = 1
	var said bytes.Buffer
	run, err := round.Run(t.Context(), p, round.NewProgress(&said, p.Estimate()))
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
	b := &round.Bench{Progress: round.NewProgress(t.Output(), 0), Result: &result.Run{}}
	p := &Suite{}
	p.Networks = []network.Network{network.Node}
	p.Open = func(context.Context, network.Network) (*suite.Testbed, error) {
		interrupt()
		return &suite.Testbed{}, nil
	}
	_, err := p.Up(ctx, b)
	if !errors.Is(err, context.Canceled) || len(p.Members) != 1 {
		t.Errorf("%d members to be closed, %v", len(p.Members), err)
	}
}

func TestQuickFitsItsLimit(t *testing.T) {
	suitetest.NeedTools(t)
	p, err := New(round.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if p.Mode != "quick" || p.Rounds < 9 || len(p.Networks) != 10 || len(p.programCells) == 0 {
		t.Errorf("mode %s, %d rounds, %d networks, %d cells of BPF run time", p.Mode, p.Rounds, len(p.Networks), len(p.programCells))
	}
	if e := p.Estimate(); e > 4*time.Minute+30*time.Second {
		t.Errorf("takes %v", e)
	}
	// A round that begins at the last moment must end in time.
	last := p.Until + p.Round(p.Subjects(), p.Length) + p.Idle
	for _, n := range p.Networks {
		if n.Unsupported() == "" {
			last += p.Beside(n)
		}
	}
	if last >= QuickLimit || p.Until < p.Estimate()/2 {
		t.Errorf("no round after %v; one at that time ends the run at %v", p.Until, last)
	}
	var cells []string
	for _, c := range p.Cells {
		cells = append(cells, c.String())
	}
	want := []string{
		"tcp_stream_128k, cross-node, one-core, 1 processes", "tcp_stream_16k, cross-node, one-core, 1 processes",
		"tcp_rr, cross-node, one-core, 1 processes", "tcp_crr, cross-node, one-core, 1 processes",
		"tcp_rr, same-node, one-core, 1 processes",
	}
	if !slices.Equal(cells, want) {
		t.Errorf("%q", cells)
	}
}

func TestBaselineIsSeen(t *testing.T) {
	for names, want := range map[string]bool{"": true, "node": true, "node+netfilter": false, "beeline": false} {
		var choice round.Options
		if names != "" {
			choice.Networks = []string{names}
		}
		p, err := New(choice)
		if err != nil {
			t.Fatal(err)
		}
		if got := suite.HasBaseline(p); got != want {
			t.Errorf("networks %q: baseline %v, want %v", names, got, want)
		}
	}
}

func TestFullHasEverything(t *testing.T) {
	suitetest.NeedTools(t)
	p, err := New(round.Options{Full: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	placements := map[result.Placement]bool{}
	procs := map[int]bool{}
	for _, c := range p.Cells {
		names[c.Workload.Info().Name] = true
		placements[c.Placement] = true
		procs[c.Procs] = true
	}
	if len(names) != len(workload.All()) || len(placements) != 2 || !procs[1] || !procs[4] || p.Pods != 200 || p.Mode != "full" {
		t.Errorf("%d workloads, %d placements, processes %v, %d pods, mode %s", len(names), len(placements), procs, p.Pods, p.Mode)
	}
}

func TestChoice(t *testing.T) {
	suitetest.NeedTools(t)
	p, err := New(round.Options{Networks: []string{"beeline", "node"}, Workloads: []string{"udp_1g", "iperf3_tcp"},
		Paths: []result.Path{result.SameNode}, Procs: []int{4, 2, 4}, Rounds: 3, Length: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if p.Mode != "custom" || p.Rounds != 3 || p.Until != 0 || p.Length != time.Second {
		t.Errorf("%+v", p)
	}
	if got := round.WithAgain(p.Names()); !slices.Equal(got, []string{"node", "node/again", "beeline"}) {
		t.Errorf("subjects %v", got)
	}
	var cells []string
	for _, c := range p.Cells {
		cells = append(cells, c.String())
	}
	want := []string{"iperf3_tcp, same-node, one-core, 2 processes", "iperf3_tcp, same-node, one-core, 4 processes", "udp_1g, same-node, one-core, 1 processes"}
	if !slices.Equal(cells, want) {
		t.Errorf("%q", cells)
	}
	for name, c := range map[string]round.Options{
		"network":   {Networks: []string{"missing"}},
		"workload":  {Workloads: []string{"nothing"}},
		"placement": {Placements: []result.Placement{"everywhere"}},
		"path":      {Paths: []result.Path{"nowhere"}},
	} {
		c.Full = true
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// What a tool cannot do is left out and named.
func TestIPv6LeavesOut(t *testing.T) {
	suitetest.NeedTools(t)
	p, err := New(round.Options{Full: true, IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	if !p.IPv6 || p.Mode != "full" || len(p.LeftOut) != 1 || !strings.HasPrefix(p.LeftOut[0], "sockperf_tcp: ") {
		t.Errorf("mode %s, left out %q", p.Mode, p.LeftOut)
	}
	for _, c := range p.Cells {
		if c.Workload.Info().Name == "sockperf_tcp" {
			t.Error("sockperf is in the plan")
		}
	}
}

func TestValidate(t *testing.T) {
	err := (&Suite{Base: suite.Base[*suite.Testbed]{Schedule: round.Schedule{ExtraRounds: -1}}, Pods: 1000}).Validate()
	if err == nil {
		t.Fatal("an empty plan is valid")
	}
	for _, field := range []string{"networks", "workloads", "rounds 0", "extra rounds", "duration", "pods 1000"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q does not name %s", err, field)
		}
	}
}
