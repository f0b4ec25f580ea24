package measure

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/workload"
	"golang.org/x/perf/benchfmt"
)

func TestShuffledIsRepeatableAndDiffers(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	orders := map[string]bool{}
	for round := range 20 {
		order := shuffled(42, round, names)
		if !slices.Equal(order, shuffled(42, round, names)) {
			t.Fatalf("round %d: two orders from one seed", round)
		}
		sorted := slices.Sorted(slices.Values(order))
		if !slices.Equal(sorted, names) {
			t.Fatalf("round %d: %v is not a permutation", round, order)
		}
		orders[fmt.Sprint(order)] = true
	}
	if len(orders) < 15 {
		t.Errorf("%d different orders in 20 rounds", len(orders))
	}
	if slices.Equal(shuffled(1, 0, names), shuffled(2, 0, names)) {
		t.Error("the seed makes no difference")
	}
	if names[0] != "a" {
		t.Error("the caller's names were shuffled")
	}
}

func TestGate(t *testing.T) {
	g := Gate{Steal: 0.02, Foreign: 0.05, Retransmits: 0.01}
	stream := func(network string, round int, retransmits float64) result.Sample {
		return result.Sample{Round: round, Network: network, Workload: "tcp_stream_16k",
			Values: map[string]float64{result.Bytes: 1000 * segment, result.Retransmits: retransmits}}
	}
	turn := func(network string, steal, foreign float64) result.Turn {
		t := result.Turn{Network: network, Steal: steal, Foreign: foreign}
		t.Discarded = g.turn(t)
		return t
	}
	turns := func(all ...result.Turn) result.Round { return result.Round{Index: 3, Turns: all} }
	discarded := func(s result.Sample) result.Sample {
		s.Discarded = "steal"
		return s
	}
	tests := map[string]struct {
		round   result.Round
		samples []result.Sample
		want    string
	}{
		"quiet":                               {turns(turn("node", 0.019, 0.049)), nil, ""},
		"steal":                               {turns(turn("node", 0.021, 0)), nil, "steal 2.1 %"},
		"foreign load":                        {turns(turn("node", 0, 0.2)), nil, "foreign load 20.0 % > 5 % with node"},
		"the second time it was quiet":        {turns(turn("node", 0, 0.2), turn("node", 0, 0.01)), nil, ""},
		"another one's noise is its own":      {turns(turn("node", 0, 0), turn("bridge", 0, 0.2)), nil, ""},
		"a storm in what was taken again":     {turns(turn("node", 0, 0)), []result.Sample{discarded(stream("node", 3, 500))}, ""},
		"a few retransmits":                   {result.Round{Index: 3}, []result.Sample{stream("node", 3, 10)}, ""},
		"a storm":                             {result.Round{Index: 3}, []result.Sample{stream("node", 3, 11)}, "sent 1.1 %"},
		"a storm in the A/A partner":          {result.Round{Index: 3}, []result.Sample{stream("node/again", 3, 500)}, "node/again"},
		"a network's own storm is its result": {result.Round{Index: 3}, []result.Sample{stream("bridge", 3, 500)}, ""},
		"a storm in another round":            {result.Round{Index: 3}, []result.Sample{stream("node", 2, 500)}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := g.round(test.round, test.samples)
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	for _, number := range []string{"steal exceeds 2 %", "foreign load 5 %", "more than 1 %"} {
		if !strings.Contains(g.String(), number) {
			t.Errorf("%q does not say %q", g, number)
		}
	}
}

func TestShares(t *testing.T) {
	// 1.86 s busy of 3.08 s, of which 1.5 s are ours.
	all := procstat.Ticks{User: 110, Nice: 5, System: 30, IRQ: 1, Softirq: 40, Steal: 2, Idle: 120}
	steal, foreign := shares(all, 1500*time.Millisecond)
	if math.Abs(steal-0.02/3.08) > 1e-9 || math.Abs(foreign-0.36/3.08) > 1e-9 {
		t.Errorf("steal %v, foreign %v", steal, foreign)
	}
	if _, foreign := shares(all, time.Hour); foreign != 0 {
		t.Errorf("foreign load %v: ticks are samples and may miss some of ours", foreign)
	}
}

// The watch must see a process that is not ours, and must not see our own work.
func TestOwnCountsThisProcess(t *testing.T) {
	before := own(nil, nil)
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
	}
	if used := own(nil, nil) - before; used <= 0 || used > 10*time.Second {
		t.Errorf("50 ms of work count as %v", used)
	}
	if got := cgroupUsage("usage_usec 1500000\nuser_usec 1\n"); got != 1500*time.Millisecond {
		t.Errorf("cgroup: %v", got)
	}
	if got, err := processTime(os.Getpid()); err != nil || got <= 0 {
		t.Errorf("own process: %v, %v", got, err)
	}
	if _, err := processTime(1 << 30); err == nil {
		t.Error("a process that is not there has CPU time")
	}
}

func TestParseProcessFiles(t *testing.T) {
	const stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 8 0 100 1000 200"
	if got, err := parseProcessStat(stat); err != nil || got != 3*time.Second {
		t.Errorf("%v, %v; want 3 s", got, err)
	}
	if _, err := parseProcessStat("nonsense"); err == nil {
		t.Error("nonsense was read")
	}
	if got, err := parseRSS("Name:\tx\nVmRSS:\t   30720 kB\n"); err != nil || got != 30<<20 {
		t.Errorf("%v, %v; want 30 MiB", got, err)
	}
	if _, err := parseRSS("Name:\tx\n"); err == nil {
		t.Error("a kernel thread has resident memory")
	}
	const devices = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1000      77    0    0    0     0          0         0     1000      77    0    0    0     0       0          0
  eth0:  123456     100    0    0    0     0          0         0   654321     250    0    0    0     0       0          0
`
	if got, err := parseDevices(devices); err != nil || got != 350 {
		t.Errorf("%v, %v; want 350 packets, without lo", got, err)
	}
}

func TestCPUs(t *testing.T) {
	tests := []struct {
		placement      result.Placement
		there          []int
		client, server int
		fails          bool
	}{
		{result.OneCore, []int{0}, 0, 0, false},
		{result.OneCore, []int{0, 1}, 1, 1, false},
		{result.Spread, []int{0, 1}, 0, 1, false},
		{result.Spread, []int{4, 6, 8, 10}, 8, 6, false},
		{result.Spread, []int{3}, 0, 0, true},
	}
	for _, test := range tests {
		client, server, err := cpus(test.placement, test.there)
		if (err != nil) != test.fails || (err == nil && (client != test.client || server != test.server)) {
			t.Errorf("%s on CPUs %v: %d, %d, %v", test.placement, test.there, client, server, err)
		}
	}
}

func needTools(t *testing.T) {
	t.Helper()
	for _, w := range workload.All() {
		if m := w.Missing(); m != "" {
			testenv.Missing(t, m)
		}
	}
}

func TestQuickFitsItsLimit(t *testing.T) {
	needTools(t)
	p, err := Quick(Choice{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if p.Mode != "quick" || p.Rounds < 9 || len(p.Networks) != 8 || len(p.ProgramCells) == 0 {
		t.Errorf("mode %s, %d rounds, %d networks, %d cells of BPF run time", p.Mode, p.Rounds, len(p.Networks), len(p.ProgramCells))
	}
	if e := p.Estimate(); e > 4*time.Minute+30*time.Second {
		t.Errorf("takes %v", e)
	}
	// A round that begins at the last moment must end in time.
	n := len(p.subjects())
	if last := p.Until + p.round(n, p.Length) + p.afterRounds(); last >= QuickLimit || p.Until < p.Estimate()/2 {
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
		var choice Choice
		if names != "" {
			choice.Networks = []string{names}
		}
		p, err := Quick(choice)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.HasBaseline(); got != want {
			t.Errorf("networks %q: baseline %v, want %v", names, got, want)
		}
	}
}

func TestFullHasEverything(t *testing.T) {
	needTools(t)
	p, err := Full(Choice{})
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
	needTools(t)
	p, err := Quick(Choice{Networks: []string{"beeline", "node"}, Workloads: []string{"udp_1g", "iperf3_tcp"},
		Paths: []result.Path{result.SameNode}, Procs: []int{4, 2, 4}, Rounds: 3, Length: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if p.Mode != "custom" || p.Rounds != 3 || p.Until != 0 || p.Length != time.Second {
		t.Errorf("%+v", p)
	}
	if got := p.subjects(); !slices.Equal(got, []string{"node", "node/again", "beeline"}) {
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
	for name, c := range map[string]Choice{
		"network":   {Networks: []string{"nobody"}},
		"workload":  {Workloads: []string{"nothing"}},
		"placement": {Placements: []result.Placement{"everywhere"}},
		"path":      {Paths: []result.Path{"nowhere"}},
	} {
		if _, err := Full(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// What a tool cannot do is left out and named.
func TestIPv6LeavesOut(t *testing.T) {
	needTools(t)
	p, err := Full(Choice{IPv6: true})
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
	err := Plan{Schedule: Schedule{ExtraRounds: -1}, Pods: 1000}.Validate()
	if err == nil {
		t.Fatal("an empty plan is valid")
	}
	for _, field := range []string{"networks", "workloads", "rounds 0", "extra rounds", "duration", "pods 1000"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q does not name %s", err, field)
		}
	}
}

func TestProgress(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	p := NewProgress(&out, true, 100*time.Second)
	p.now, p.started = func() time.Time { return now }, now
	if got := p.remaining(); got != 100*time.Second {
		t.Errorf("at the start %v left", got)
	}
	p.Advance(50 * time.Second)
	now = now.Add(100 * time.Second) // at half the pace
	if got := p.remaining(); got != 100*time.Second {
		t.Errorf("half done in twice the time: %v left", got)
	}
	p.Status("measuring")
	p.Note("a note")
	if got := out.String(); !strings.Contains(got, " 50 %  1m40s left  measuring") || !strings.HasSuffix(got, "\ra note\n") {
		t.Errorf("%q", got)
	}

	out.Reset()
	p = NewProgress(&out, false, time.Minute)
	p.Status("never seen")
	p.Step("round 1 done")
	if got := out.String(); got != "[1m0s left] round 1 done\n" {
		t.Errorf("%q", got)
	}
}

// benchstat must read what is written: names, units and configuration.
func TestBenchmarkFormat(t *testing.T) {
	run := &result.Run{
		Version: "v1", Environment: result.Environment{Kernel: "6.18.44", CPU: "A CPU"}, Settings: result.Settings{MTU: 1500},
		Rounds: []result.Round{{Index: 0}, {Index: 1, Discarded: "steal"}},
		Samples: []result.Sample{
			{Round: 0, Network: "node/again", Workload: "tcp_stream_128k", Path: result.CrossNode, Placement: result.OneCore, Procs: 2,
				Values: map[string]float64{result.Throughput: 48.5, result.Retransmits: 3, result.Bytes: 1e9}},
			{Round: 0, Network: "beeline", Workload: "sockperf_tcp", Path: result.SameNode, Placement: result.Spread, Procs: 1,
				Values: map[string]float64{result.RTT: 13.5, result.RTTP999: 60}},
			{Round: 0, Network: "beeline", Workload: "tcp_rr", Error: "broken"},
			{Round: 1, Network: "beeline", Workload: "tcp_rr", Values: map[string]float64{result.Rate: 1}},
		},
	}
	dir := t.TempDir()
	if err := Save(dir, run); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, BenchmarkFile))
	if err != nil {
		t.Fatal(err)
	}
	reader := benchfmt.NewReader(bytes.NewReader(text), BenchmarkFile)
	var names []string
	for reader.Scan() {
		switch rec := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Errorf("%v", rec)
		case *benchfmt.Result:
			names = append(names, string(rec.Name))
			if got := rec.GetConfig("kernel"); got != "6.18.44" {
				t.Errorf("kernel %q", got)
			}
			if v, ok := rec.Value("Gbit/s"); strings.Contains(string(rec.Name), "TcpStream") && (!ok || v != 48.5) {
				t.Errorf("%s: %v", rec.Name, rec.Values)
			}
			if v, ok := rec.Value("p99.9-rtt-µs"); strings.Contains(string(rec.Name), "Sockperf") && (!ok || v != 60) {
				t.Errorf("%s: %v", rec.Name, rec.Values)
			}
		}
	}
	if err := reader.Err(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"TcpStream128k/network=node:again/path=cross-node/placement=one-core/procs=2",
		"SockperfTcp/network=beeline/path=same-node/placement=spread/procs=1",
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	for unit, better := range map[string]float64{"Gbit/s": 1, "trans/s": 1, "rtt-µs": -1} {
		if got := reader.Units().GetBetter(unit); got != int(better) {
			t.Errorf("%s: better %d, want %v", unit, got, better)
		}
	}
}
