package report

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// synthetic makes a run from invented figures, with everything that a report must handle: an unsupported network, failed
// samples, a discarded round, a footprint without an agent, figures that some networks lack.
func synthetic(rounds int) *result.Run {
	g := &generator{random: rand.New(rand.NewPCG(1, 2))}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	g.run = &result.Run{
		Schema: 1, Version: "v0.0.0-synthetic", Command: []string{"beeline-lab", "bench", "--rounds", "8", "--out", "a directory"}, Seed: 42,
		Started: start, Finished: start.Add(4*time.Minute + 30*time.Second),
		Settings: result.Settings{
			Mode: "quick", Rounds: rounds, Seconds: 1, Placement: []string{"one-core", "spread"}, MTU: 1500,
			Gate: "a round is discarded when steal exceeds 2 % or foreign load 5 % of the CPU time of all CPUs",
		},
		Environment: result.Environment{
			Hostname: "synthetic", Kernel: "6.99.0-synthetic", Distribution: "Test data, not a measurement", CPU: "Imaginary CPU", CPUs: 2,
			MemoryBytes: 24 << 30, Virtualization: "kvm", CongestionControl: "cubic", LoadBefore: "0.02 0.05 0.01 1/120 4242",
			Sysctls:  map[string]string{"net.core.rmem_max": "212992", "net.ipv4.tcp_congestion_control": "cubic"},
			Tools:    map[string]string{"netperf": "2.7.0", "sockperf": "3.7", "iperf3": "3.12"},
			Features: map[string]bool{"tcx": true, "netkit": false, "wireguard": false, "bpf stats": true},
		},
		Networks: []result.Network{
			{Name: "node", Description: "The two nodes themselves, no containers."},
			{Name: "node+netfilter", Description: "The nodes with connection tracking and a rule set like kube-proxy's.", Facts: map[string]string{"rules": "50 Services"}},
			{Name: "beeline", Description: "Pods on veth pairs, eBPF routing.", Version: "v0.0.0-synthetic", Facts: map[string]string{"MTU in the pod": "1500", "routing": "ebpf"}},
			{Name: "bridge", Description: "Reference bridge plugin with host-local addresses.", Version: "1.1.1"},
			{Name: "ptp", Description: "Reference ptp plugin with host-local addresses.", Version: "1.1.1"},
			{Name: "macvlan", Description: "Reference macvlan plugin.", Version: "1.1.1"},
			{Name: "vxlan", Description: "Bridge over a kernel VXLAN device.", Unsupported: "not on this kernel: VXLAN (CONFIG_VXLAN)"},
		},
		Workloads: []result.Workload{
			{Name: "tcp_stream_16k", Title: "TCP_STREAM, 16 KB sends", Description: "One connection, sends of 16 KB.", Tool: "netperf", Metric: "throughput", Unit: "Gbit/s", Better: "higher", Work: "GB"},
			{Name: "tcp_rr", Title: "TCP_RR", Description: "One byte there and one back on an open connection.", Tool: "netperf", Metric: "rate", Unit: "/s", Better: "higher", Work: "transaction"},
			{Name: "tcp_crr", Title: "TCP_CRR", Description: "A new connection for each transaction.", Tool: "netperf", Metric: "rate", Unit: "/s", Better: "higher", Work: "transaction"},
			{Name: "sockperf_tcp", Title: "sockperf ping-pong, TCP", Description: "Full round trips.", Tool: "sockperf", Metric: "rtt", Unit: "µs", Better: "lower", Work: "message"},
		},
	}
	for i := range rounds {
		r := result.Round{Index: i, Started: start.Add(time.Duration(i) * 30 * time.Second), Seconds: 29.5, Steal: 0.001 * float64(i%3), Foreign: 0.004,
			Order: []string{"node", "ptp", "beeline", "macvlan", "node/again", "bridge", "node+netfilter"}}
		if i == 4 {
			r.Steal, r.Discarded = 0.087, "steal 8.7 % > 2 %"
		}
		g.run.Rounds = append(g.run.Rounds, r)
	}
	share := map[string][4]float64{ // of node, by workload
		"node":           {1, 1, 1, 1},
		"node/again":     {1, 1, 1, 1},
		"node+netfilter": {0.77, 0.847, 0.783, 1.18},
		"beeline":        {0.86, 0.884, 0.892, 1.13},
		"bridge":         {0.465, 0.68, 0.652, 1.47},
		"ptp":            {0.51, 0.71, 0.69, 1.41},
		"macvlan":        {0.952, 0.951, 0.963, 1.05},
	}
	base := [4]float64{21.4, 72000, 16100, 13.9}
	order := []string{"node", "node/again", "node+netfilter", "beeline", "bridge", "ptp", "macvlan"}
	for i, w := range g.run.Workloads {
		for _, name := range order {
			g.samples(w, name, result.CrossNode, result.OneCore, 1, base[i]*share[name][i])
			if w.Name == "tcp_rr" {
				same := 1 - (1-share[name][i])*0.4
				g.samples(w, name, result.SameNode, result.OneCore, 1, base[i]*1.1*same)
			}
			if w.Name == "tcp_rr" && name != "ptp" {
				g.samples(w, name, result.CrossNode, result.Spread, 2, 31000*(0.6+0.4*share[name][i]))
			}
		}
	}
	g.damage()
	g.run.Summary = stats.Summarize(g.run)
	g.extras()
	return g.run
}

type generator struct {
	random *rand.Rand
	run    *result.Run
}

func (g *generator) samples(w result.Workload, name string, path result.Path, placement result.Placement, procs int, centre float64) {
	for i, r := range g.run.Rounds {
		noise := 1 + 0.006*g.random.NormFloat64()
		if r.Discarded != "" {
			noise *= 0.8
		}
		value := round4(centre * noise)
		s := result.Sample{
			Round: i, Network: name, Workload: w.Name, Path: path, Placement: placement, Procs: procs,
			Started: r.Started.Add(time.Second), Seconds: 1, Values: map[string]float64{w.Metric: value},
			Command: []string{w.Tool, "-t", w.Name, "-H", "10.0.0.2"},
		}
		busy := 0.97 + 0.01*g.random.Float64()
		s.CPU = result.CPU{User: round4(0.07 * busy), System: round4(0.5 * busy), Softirq: round4(0.43 * busy), Steal: round4(r.Steal), Idle: round4(1 - busy)}
		if w.Name == "tcp_rr" {
			rtt := 1e6 / value * float64(procs)
			s.Values[result.RTT], s.Values[result.RTTP50], s.Values[result.RTTP99] = round4(rtt), round4(rtt*0.97), round4(rtt*1.6)
		}
		if w.Unit == "Gbit/s" {
			s.Values[result.Retransmits] = float64(g.random.IntN(3))
		}
		if w.Unit == "µs" {
			s.Latency = g.histogram(value)
		}
		g.run.Samples = append(g.run.Samples, s)
	}
}

// histogram has a long tail and buckets 2 % wide.
func (g *generator) histogram(centre float64) *result.Histogram {
	h := new(result.Histogram)
	for i := range 160 {
		upTo := centre * 0.7 * math.Pow(1.03, float64(i))
		x := math.Log(upTo/centre) / 0.06
		n := 20000 * math.Exp(-x*x/2)
		if upTo > centre {
			n += 400 * math.Pow(upTo/centre, -3)
		}
		if n < 1 {
			continue
		}
		h.UpTo = append(h.UpTo, round4(upTo))
		h.Count = append(h.Count, uint64(n))
	}
	return h
}

// damage makes samples fail: ptp twice in TCP_CRR, bridge always in sockperf.
func (g *generator) damage() {
	for i := range g.run.Samples {
		s := &g.run.Samples[i]
		switch {
		case s.Network == "ptp" && s.Workload == "tcp_crr" && (s.Round == 2 || s.Round == 5):
			s.Error = "netperf: establish control: are you sure there is a netserver listening?"
		case s.Network == "bridge" && s.Workload == "sockperf_tcp":
			s.Error = "sockperf: connection timed out after 5 s <&\">"
		default:
			continue
		}
		s.Values, s.Latency, s.CPU = nil, nil, result.CPU{}
	}
}

func (g *generator) extras() {
	adds := func(centre float64) []float64 {
		var list []float64
		for range 10 {
			list = append(list, round4(centre*math.Exp(0.18*g.random.NormFloat64())))
		}
		return list
	}
	idle := 0.0011
	g.run.Footprints = []result.Footprint{
		{Network: "beeline", AddMilliseconds: adds(11), DelMilliseconds: adds(6), Pods: 100, AgentRSSBytes: 31 << 20, MapBytes: 2_200_000, IdleCPU: &idle},
		{Network: "ptp", AddMilliseconds: adds(38), DelMilliseconds: adds(30)},
		{Network: "bridge", AddMilliseconds: adds(45), DelMilliseconds: adds(33)},
	}
	for _, p := range []struct {
		path  result.Path
		name  string
		nanos uint64
	}{
		{result.CrossNode, "from_pod", 158}, {result.CrossNode, "to_wire", 61}, {result.CrossNode, "from_wire", 121}, {result.SameNode, "from_pod", 149},
	} {
		const packets = 1_200_000
		g.run.Programs = append(g.run.Programs, result.Program{Network: "beeline", Workload: "tcp_rr", Path: p.path, Name: p.name, Runs: packets, Nanoseconds: p.nanos * packets, Packets: packets})
	}
	g.run.CrossChecks = []result.CrossCheck{
		{Network: "node", Path: result.CrossNode, Check: "TCP_RR ≈ 1e6 / RTT µs", Expected: 71942, Measured: 72010, Agree: true},
		{Network: "beeline", Path: result.CrossNode, Check: "TCP_RR ≈ 1e6 / RTT µs", Expected: 63650, Measured: 63710, Agree: true},
		{Network: "ptp", Path: result.CrossNode, Check: "TCP_RR ≈ 1e6 / RTT µs", Expected: 51020, Measured: 40020, Agree: false},
	}
}

func round4(v float64) float64 {
	scale := math.Pow(10, 4-math.Ceil(math.Log10(math.Abs(v)+1e-12)))
	return math.Round(v*scale) / scale
}
