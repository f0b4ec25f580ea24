package stats

import (
	"cmp"
	"slices"

	"github.com/beeline-cni/beeline/lab/result"
)

// Baseline is the network that others are compared with, Again its second measurement in every round.
const (
	Baseline = "node"
	Again    = "node/again"
)

// PerRound is the suffix of a percentile that is the median of the rounds' percentiles, for tools without histograms.
const PerRound = "_per_round"

// Key identifies a comparison. Samples with the same key were measured in the same way.
type Key struct {
	Workload  string
	Path      result.Path
	Placement result.Placement
	Procs     int
}

// KeyOf returns the key of a sample.
func KeyOf(s *result.Sample) Key { return Key{s.Workload, s.Path, s.Placement, s.Procs} }

// series has the samples of one network in one comparison, by round.
type series map[int]*result.Sample

type table struct {
	run    *result.Run
	series map[Key]map[string]series
	keys   []Key    // in the order of the run
	names  []string // of networks, in the order of the run
}

// newTable arranges the samples that count: those without error, of rounds and turns that were not discarded. Warm-up
// samples have negative rounds and do not count.
func newTable(run *result.Run) *table {
	discarded := map[int]bool{}
	for _, r := range run.Rounds {
		discarded[r.Index] = r.Discarded != ""
	}
	t := &table{run: run, series: map[Key]map[string]series{}}
	for i := range run.Samples {
		s := &run.Samples[i]
		if s.Error != "" || s.Discarded != "" || s.Round < 0 || discarded[s.Round] {
			continue
		}
		k := KeyOf(s)
		if t.series[k] == nil {
			t.series[k] = map[string]series{}
			t.keys = append(t.keys, k)
		}
		if t.series[k][s.Network] == nil {
			t.series[k][s.Network] = series{}
		}
		t.series[k][s.Network][s.Round] = s
		if !slices.Contains(t.names, s.Network) {
			t.names = append(t.names, s.Network)
		}
	}
	t.sort()
	return t
}

// sort puts networks and comparisons in the order in which the run lists them. The samples are in random order.
func (t *table) sort() {
	rank := func(name string) int {
		if name == Again {
			name = Baseline
		}
		return slices.IndexFunc(t.run.Networks, func(c result.Network) bool { return c.Name == name })
	}
	slices.SortStableFunc(t.names, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	workload := func(k Key) int {
		return slices.IndexFunc(t.run.Workloads, func(w result.Workload) bool { return w.Name == k.Workload })
	}
	slices.SortStableFunc(t.keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(workload(a), workload(b)), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Placement, b.Placement), cmp.Compare(a.Procs, b.Procs))
	})
}

// value reads one figure of a sample.
type value func(*result.Sample) (float64, bool)

func metric(name string) value {
	return func(s *result.Sample) (float64, bool) {
		v, ok := s.Values[name]
		return v, ok
	}
}

func (s series) values(of value) []float64 {
	var list []float64
	for _, sample := range s {
		if v, ok := of(sample); ok {
			list = append(list, v)
		}
	}
	return list
}

// ratios are a ÷ b in each round that has both.
func ratios(a, b series, of value) []float64 {
	var list []float64
	for round, sample := range a {
		other, ok := b[round]
		if !ok {
			continue
		}
		x, okX := of(sample)
		y, okY := of(other)
		if okX && okY && y > 0 {
			list = append(list, x/y)
		}
	}
	return list
}

// Summarize derives the figures of a run from its samples: for each network and comparison the headline metric, latencies
// and CPU time per unit of work, each with its ratio to the baseline within a round. A same-node comparison has a second
// summary of the headline metric (result.VersusWire), with the ratio to the baseline's cross-node sample.
//
// Round-trip percentiles come from the merged histograms of all rounds and have no interval. For tools without histograms
// the summary has the median of the rounds' percentiles instead, with the suffix PerRound: it is not a percentile of all
// transactions.
func Summarize(run *result.Run) []result.Summary {
	t := newTable(run)
	var list []result.Summary
	for _, k := range t.keys {
		for _, name := range t.names {
			if t.series[k][name] != nil {
				list = append(list, t.summaries(k, name, Baseline)...)
			}
		}
	}
	return list
}

// Between derives the figures of one network, with ratios to another network in place of the baseline.
func Between(run *result.Run, network, other string) []result.Summary {
	t := newTable(run)
	var list []result.Summary
	for _, k := range t.keys {
		if t.series[k][network] != nil && t.series[k][other] != nil {
			list = append(list, t.summaries(k, network, other)...)
		}
	}
	return list
}

func (t *table) workload(name string) result.Workload {
	for _, w := range t.run.Workloads {
		if w.Name == name {
			return w
		}
	}
	return result.Workload{Name: name}
}

// summaries are the figures of a network, with ratios to the network `to`.
func (t *table) summaries(k Key, name, to string) []result.Summary {
	w := t.workload(k.Workload)
	own, base := t.series[k][name], t.series[k][to]
	headline := result.Metric{Name: w.Metric, Unit: w.Unit, Better: w.Better}
	list := []result.Summary{summarize(k, name, headline, own, base, metric(w.Metric))}
	if k.Path == result.SameNode {
		wire := k
		wire.Path = result.CrossNode
		if remote := t.series[wire][to]; remote != nil {
			m := headline
			m.Name += result.VersusWire
			list = append(list, summarize(k, name, m, own, remote, metric(headline.Name)))
		}
	}
	for _, m := range secondary(w) {
		s := summarize(k, name, m.Metric, own, base, m.of)
		if m.merge > 0 {
			merged := own.merge()
			s.Median, s.Low, s.High = Percentile(merged, m.merge), nil, nil
			if float64(Total(merged))*(1-m.merge) < 1 { // the percentile would simply be the longest round trip
				s.N = 0
			}
		}
		list = append(list, s)
	}
	return slices.DeleteFunc(list, func(s result.Summary) bool { return s.N == 0 })
}

// figure is a metric beside the headline metric. With merge, that percentile of the merged histograms replaces the median.
type figure struct {
	result.Metric
	of    value
	merge float64
}

// percentiles are the reported ones.
var percentiles = []struct {
	name string
	q    float64
}{{result.RTTP50, 0.5}, {result.RTTP90, 0.9}, {result.RTTP99, 0.99}, {result.RTTP999, 0.999}}

func secondary(w result.Workload) []figure {
	var list []figure
	names := []string{result.RTT, result.Loss, result.Retransmits}
	if w.Work == "GB" {
		// The kernel sizes the buffer if the workload does not, and differently each time. A buffer larger than the CPU's
		// cache makes a stream slower, which is one reason for figures with two modes.
		names = append(names, result.ReceiveBuffer, result.CPUSender, result.CPUReceiver)
	}
	for _, name := range names {
		if name != w.Metric {
			m, _ := result.MetricNamed(name)
			list = append(list, figure{Metric: m, of: metric(name)})
		}
	}
	for _, p := range percentiles {
		m, _ := result.MetricNamed(p.name)
		list = append(list, figure{m, histogramPercentile(p.q), p.q})
		m.Name += PerRound
		list = append(list, figure{Metric: m, of: toolPercentile(p.name)})
	}
	if m, ok := result.MetricNamed(cpuMetric[w.Work]); ok {
		list = append(list, figure{Metric: m, of: cpuPerWork(w)})
	}
	return list
}

func histogramPercentile(q float64) value {
	return func(s *result.Sample) (float64, bool) {
		return Percentile(s.Latency, q), Total(s.Latency) > 0
	}
}

func toolPercentile(name string) value {
	return func(s *result.Sample) (float64, bool) {
		v, ok := s.Values[name]
		return v, ok && s.Latency == nil
	}
}

// cpuMetric maps a unit of work to its metric of CPU time.
var cpuMetric = map[string]string{
	"transaction": result.CPUTransaction,
	"GB":          result.CPUGB,
	"message":     result.CPUMessage,
}

// Busy is CPU time without steal and idle time, in seconds.
func Busy(c result.CPU) float64 { return c.User + c.System + c.Softirq }

// Work is the number of units of work (GB, transactions, messages) of a sample; 0 if it is not known.
func Work(w result.Workload, s *result.Sample) float64 {
	rate := s.Values[w.Metric]
	switch {
	case w.Work == "message" && s.Values[result.Messages] > 0:
		return s.Values[result.Messages]
	case w.Work == "GB" && w.Unit == "Gbit/s":
		return rate / 8 * s.Seconds
	case w.Work == "GB" && w.Unit == "Mbit/s":
		return rate / 8e3 * s.Seconds
	case w.Work != "" && w.Unit == "/s":
		return rate * s.Seconds
	case w.Work != "" && w.Unit == "µs" && rate > 0: // a round trip: one message after the other
		return s.Seconds * 1e6 / rate
	}
	return 0
}

// cpuPerWork divides the CPU time of a sample by its work, in µs, or ms for a GB.
func cpuPerWork(w result.Workload) value {
	scale := 1e6
	if w.Work == "GB" {
		scale = 1e3
	}
	return func(s *result.Sample) (float64, bool) {
		busy, work := Busy(s.CPU), Work(w, s)
		if busy <= 0 || work <= 0 {
			return 0, false
		}
		return busy / work * scale, true
	}
}

func summarize(k Key, name string, m result.Metric, own, base series, of value) result.Summary {
	values, ratio := MedianOf(own.values(of)), MedianOf(ratios(own, base, of))
	s := result.Summary{
		Network: name, Workload: k.Workload, Path: k.Path, Procs: k.Procs, Placement: k.Placement,
		Metric: m.Name, Unit: m.Unit, Better: m.Better,
		Median: values.Median, Low: values.Low, High: values.High, N: values.N,
	}
	if ratio.N > 0 {
		s.Ratio, s.RatioLow, s.RatioHigh = &ratio.Median, ratio.Low, ratio.High
	}
	return s
}
