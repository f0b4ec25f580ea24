package report

import (
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/workload"
)

// encryptionStudy is the study that compares WireGuard with IPsec on both MTUs.
const encryptionStudy = "cilium-2021"

// The kinds of encryption, as names of networks end.
const (
	byWireGuard = "-wireguard"
	byIPsec     = "-ipsec"
)

var kindNames = map[string]string{byWireGuard: "WireGuard", byIPsec: "IPsec"}

// encryptedBy are who encrypts: names of networks begin so.
var encryptedBy = []string{beeline, "kernel"}

// encryption has what the encryption suite shows beside its figures.
func (v *view) encryption() Section {
	s := Section{ID: "encryption", Title: "Encryption", Notes: []string{
		"Both nodes are on this machine, and WireGuard encrypts and decrypts on all its CPUs: what the CPUs of sender and receiver have done is " +
			"told apart for networks without WireGuard only. CPU time per GB is that of all CPUs.",
	}}
	if v.run.Encryption == nil {
		return s
	}
	s.Tables = []*Table{v.wires(), v.paced(), v.claims()}
	return s
}

// wires has what the nodes' uplinks carried before the rounds.
func (v *view) wires() *Table {
	t := newTable(Everywhere, "On the wire: a marked payload between pods, captured before the rounds", "",
		"Network", "MTU", "encryption", "frames", "with the mark", "with a pod's address", "bytes of encrypted frames")
	for _, w := range v.run.Encryption.Wires {
		kind := "none"
		if w.Kind != "" {
			kind = w.Kind
		}
		t.add(w.Network, w.MTU, kind, w.Frames, w.Marked, w.Inside, w.EncryptedBytes)
	}
	return t
}

// atMTU is the figure of a workload on a wire with an MTU, or one without rows.
func (v *view) atMTU(of string, mtu int) figure {
	name := workload.AtMTUName(of, mtu)
	return find(v.figures, func(f figure) bool { return f.key.Workload == name && f.key.Path == result.CrossNode })
}

// mtus are those of the run's wires.
func (v *view) mtus() (list []int) {
	for _, w := range v.run.Workloads {
		if w.MTU > 0 && !slices.Contains(list, w.MTU) {
			list = append(list, w.MTU)
		}
	}
	return list
}

// sampleValue reads one figure of a sample.
type sampleValue func(*result.Sample) (float64, bool)

// valued are the points with another figure of their samples.
func valued(points []point, of sampleValue) (list []point) {
	for _, p := range points {
		if value, ok := of(p.Sample); ok {
			p.value = value
			list = append(list, p)
		}
	}
	return list
}

// metricValue is a metric of the samples.
func metricValue(name string) sampleValue {
	return func(s *result.Sample) (float64, bool) {
		value, ok := s.Values[name]
		return value, ok
	}
}

// timePerGB is the CPU time of a GB in ms.
func timePerGB(w result.Workload) sampleValue {
	return func(s *result.Sample) (float64, bool) {
		busy, work := stats.Busy(s.CPU), stats.Work(w, s)
		if busy <= 0 || work <= 0 {
			return 0, false
		}
		return busy / work * 1e3, true
	}
}

// paced has the CPU time of streams at an equal rate.
func (v *view) paced() *Table {
	t := newTable(Everywhere, "CPU time at an equal rate", "a tenth of what the slowest network reaches",
		"Network", "MTU", "rate", "sender's CPU", "receiver's CPU", "of all CPUs, per GB", "ratio to the kernel's own")
	for _, rate := range v.run.Encryption.Paced {
		f := v.atMTU(workload.PacedName, rate.MTU)
		for _, r := range f.rows {
			show := func(of sampleValue, unit string) string {
				if i := medianOf(valued(r.points, of)); i.N > 0 {
					return quantity(i.Median, unit)
				}
				return ""
			}
			cost := timePerGB(f.work)
			against := none
			for _, kind := range []string{byWireGuard, byIPsec} {
				if r.network == beeline+kind {
					against = ratioCell(paired(valued(r.points, cost), valued(f.row("kernel"+kind).points, cost)))
				}
			}
			if len(r.points) > 0 {
				t.add(r.network, rate.MTU, quantity(rate.Rate, "Gbit/s"), show(metricValue(result.CPUSender), "%"), show(metricValue(result.CPUReceiver), "%"),
					show(cost, "ms"), against)
			}
		}
	}
	return t
}

// medianOf is the median of points that count.
func medianOf(points []point) stats.Interval {
	var values []float64
	for _, p := range points {
		if !p.discarded {
			values = append(values, p.value)
		}
	}
	return stats.MedianOf(values)
}

// claim is what the study found of WireGuard and IPsec: a quotient above 1.
type claim struct {
	name string
	// of is the workload, test and baseline are the study's, both with the MTU.
	of, test string
	// above and below are the kinds of encryption, and systems those of the study.
	above, below string
	systems      [2]string
	value        func(result.Workload) sampleValue
	// apart says that the claim wants the CPUs of the two ends told apart.
	apart bool
}

// claims are those of the study.
func claims() []claim {
	rate := func(w result.Workload) sampleValue { return metricValue(w.Metric) }
	cpu := func(metric string) func(result.Workload) sampleValue {
		return func(result.Workload) sampleValue { return metricValue(metric) }
	}
	wireGuardFirst, ipsecFirst := [2]string{"WireGuard", "IPsec"}, [2]string{"IPsec", "WireGuard"}
	return []claim{
		{"WireGuard reaches the higher maximum", "tcp_stream_128k", "Encrypted TCP_STREAM, MTU %d", byWireGuard, byIPsec, [2]string{"WireGuard with eBPF", "IPsec"}, rate, false},
		{"IPsec needs less of the sender's CPU at an equal rate", workload.PacedName, "Encrypted, client CPU for 10 Gbit/s, MTU %d", byWireGuard, byIPsec, wireGuardFirst, cpu(result.CPUSender), true},
		{"IPsec needs less of the receiver's CPU at an equal rate", workload.PacedName, "Encrypted, server CPU for 10 Gbit/s, MTU %d", byWireGuard, byIPsec, wireGuardFirst, cpu(result.CPUReceiver), true},
		{"IPsec needs less CPU of both at an equal rate", workload.PacedName, "", byWireGuard, byIPsec, wireGuardFirst, timePerGB, false},
		{"IPsec has the higher TCP_RR", "tcp_rr", "Encrypted TCP_RR, 1 process, MTU %d", byIPsec, byWireGuard, ipsecFirst, rate, false},
	}
}

// What a measurement says about a claim.
const (
	confirmed    = "confirmed"
	notConfirmed = "not confirmed"
	notDecidable = "not decidable"
)

// claims has the quotients of WireGuard and IPsec, published and measured, and what that says about what was published.
func (v *view) claims() *Table {
	t := newTable(Everywhere, "WireGuard and IPsec against each other", "published by "+study(encryptionStudy).Name()+", whose machines are others",
		"Network", "published finding", "MTU", "quotient", "published", "measured", "95 % interval", "verdict")
	for _, c := range claims() {
		for _, mtu := range v.mtus() {
			for _, by := range encryptedBy {
				f := v.atMTU(c.of, mtu)
				of := c.value(f.work)
				i := paired(valued(f.row(by+c.above).points, of), valued(f.row(by+c.below).points, of))
				published := c.published(mtu)
				t.add(by, c.name, mtu, kindNames[c.above]+" ÷ "+kindNames[c.below], ratio(&published), ratioCell(i), interval(i.Low, i.High), v.verdict(c, i))
			}
		}
	}
	return t
}

// published is the study's quotient.
func (c claim) published(mtu int) float64 {
	sum := func(system string) (value float64) {
		tests := []string{c.test}
		if c.test == "" { // both ends together
			tests = []string{"Encrypted, client CPU for 10 Gbit/s, MTU %d", "Encrypted, server CPU for 10 Gbit/s, MTU %d"}
		}
		for _, test := range tests {
			value += publishedValue(encryptionStudy, fmt.Sprintf(test, mtu), system)
		}
		return value
	}
	return sum(c.systems[0]) / sum(c.systems[1])
}

// verdict says what the quotient of a run says about a claim.
func (v *view) verdict(c claim, i stats.Interval) string {
	switch {
	case emulated(v.run.Environment):
		return notDecidable + ": emulated"
	case i.N == 0:
		return notDecidable + ": not measured"
	case c.apart:
		return notDecidable + ": both nodes are on this machine"
	case i.Low == nil || i.High == nil:
		return notDecidable + ": too few rounds"
	case *i.Low > 1:
		return confirmed
	case *i.High < 1:
		return notConfirmed
	}
	return notDecidable + ": the interval includes 1"
}

// encryptionTargets are Beeline's ratios to the kernel's own of each kind.
func (v *view) encryptionTargets() (list []target) {
	for _, kind := range []string{byWireGuard, byIPsec} {
		for _, mtu := range v.mtus() {
			for _, of := range []string{"tcp_stream_128k", "tcp_rr", "tcp_crr"} {
				if f := v.atMTU(of, mtu); len(f.rows) > 0 {
					list = append(list, target{
						name: beeline + kind + " against kernel" + kind + ", " + f.work.Title, bound: 0.97,
						measured: paired(f.row(beeline+kind).points, f.row("kernel"+kind).points),
					})
				}
			}
		}
	}
	return list
}
