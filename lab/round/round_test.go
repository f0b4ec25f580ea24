package round

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
	before := ownTime(nil, nil)
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
	}
	if used := ownTime(nil, nil) - before; used <= 0 || used > 10*time.Second {
		t.Errorf("50 ms of work count as %v", used)
	}
	if got := cgroupUsage("usage_usec 1500000\nuser_usec 1\n"); got != 1500*time.Millisecond {
		t.Errorf("cgroup: %v", got)
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
		client, server, err := endCPUs(test.placement, test.there)
		if (err != nil) != test.fails || (err == nil && (client != test.client || server != test.server)) {
			t.Errorf("%s on CPUs %v: %d, %d, %v", test.placement, test.there, client, server, err)
		}
	}
}

func TestProgress(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	p := NewProgress(&out, 100*time.Second)
	p.now, p.started = func() time.Time { return now }, now
	if got := p.remaining(); got != 100*time.Second {
		t.Errorf("at the start %v left", got)
	}
	p.Advance(50 * time.Second)
	now = now.Add(100 * time.Second) // at half the pace
	if got := p.remaining(); got != 100*time.Second {
		t.Errorf("half done in twice the time: %v left", got)
	}
	p.Note("a note of %d", 1)
	p.Step("round %d done", 1)
	if got := out.String(); got != "a note of 1\n[1m40s left] round 1 done\n" {
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

func TestStayOnIsUndone(t *testing.T) {
	if len(CPUs()) < 2 {
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
	restore, err := StayOn(CPUs()[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := listed(); got != fmt.Sprint(CPUs()[0]) {
		t.Errorf("pinned to %s", got)
	}
	restore()
	if got := listed(); got != before {
		t.Errorf("%s after, %s before", got, before)
	}
}
