package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// policyPromises are what a run of the policy bench is made to check.
func policyPromises(run *result.Run) []promise {
	const rr, crr, stream = "tcp_rr", "tcp_crr", "tcp_stream_128k"
	titles := map[string]string{}
	for _, w := range run.Workloads {
		titles[w.Name] = w.Title
	}
	var list []promise
	against := func(what, a, b string, bounds map[string]float64) {
		for _, w := range []string{rr, crr, stream} {
			title := titles[w]
			if title == "" {
				title = w
			}
			list = append(list, promise{what: what + ", " + title, bound: bounds[w], median: true, got: func(v *view) (stats.Interval, bool) {
				return v.within(w, a, w, b, v.placement())
			}})
		}
	}
	same := func(bound float64) map[string]float64 {
		return map[string]float64{rr: bound, crr: bound, stream: bound}
	}
	against("No policy on the pod, policies elsewhere", policyElsewhere, subject, same(0.99))
	against("Allowing policies on both pods", withPolicy, subject, map[string]float64{rr: 0.97, crr: 0.93, stream: 0.98})
	against("100,000 ipBlocks against 1", blocksMany, blocksOne, same(0.98))
	against("Flows on, by default, with policies", withPolicy, flowsOff, same(0.97))
	against("Flows of all pods, without policies", allFlows, subject, same(0.97))
	list = append(list, compilePromises(run)...)
	list = append(list, changePromises(run)...)
	return append(list, promise{
		what: "Connections that are not as the policies say, of all of Beeline's contenders", atMost: true, show: func(n float64) string { return fmt.Sprint(int(n)) },
		got: func(*view) (stats.Interval, bool) { return beelinesWrong(run) },
		beside: func() string {
			asked, _ := beelinesWrong(run)
			text := fmt.Sprintf("of %d", asked.N)
			if n := beelinesUnknown(run); n > 0 {
				text += fmt.Sprintf(", %d %s", n, notKnown)
			}
			return text
		},
		brokeOff: beelinesSilent(run), incomplete: beelinesUnknown(run) > 0,
	})
}

// atMost is a promise about some times in milliseconds of the contender that has many policies: about what choose makes of them.
func atMost(what string, bound float64, values []float64, brokeOff bool, choose func([]float64) float64) promise {
	return promise{
		what: what, bound: bound, atMost: true, show: inUnit("ms"), brokeOff: brokeOff,
		got: func(*view) (stats.Interval, bool) {
			if len(values) > 0 {
				return exactly(choose(values), len(values))
			}
			return stats.Interval{}, false
		},
		beside: func() string {
			return fmt.Sprintf("n %d, P50 %s, max %s", len(values), quantity(stats.Quantile(values, 0.5), "ms"), quantity(slices.Max(values), "ms"))
		},
	}
}

func compilePromises(run *result.Run) []promise {
	var many result.PolicyCompile
	for _, c := range run.Policy.Compiled {
		if c.Network == policyMany {
			many = c
		}
	}
	scratch := "1,000 policies × 1,000 pods from nothing until they are in the kernel, the slowest"
	if many.LocalPods > 0 {
		scratch = fmt.Sprintf("1,000 policies × 1,000 pods, %d of them here, from nothing until they are in the kernel, the slowest", many.LocalPods)
	}
	return []promise{
		atMost(scratch, 1000, many.FullMilliseconds, many.Error != "", slices.Max),
		atMost("One label change among them until it is in the kernel, the slowest", 100, many.ChangeMilliseconds, many.Error != "", slices.Max),
		{
			what: "Tables of policy with them, in MB of 10⁶ bytes", bound: 32, atMost: true, show: inUnit("MB"),
			got: func(*view) (stats.Interval, bool) {
				return stats.Interval{Median: float64(many.TableBytes) / 1e6, N: 1}, many.TableBytes > 0
			},
		},
	}
}

// changePromises are that new connections obey each kind of change soon.
func changePromises(run *result.Run) []promise {
	var list []promise
	for _, what := range []result.PolicyChange{result.LabelDenies, result.LabelAllows, result.PolicyAdded, result.PolicyRemoved} {
		title := newPolicyChangeRow(result.PolicyConvergence{Change: what}).What
		var changes result.PolicyConvergence
		for _, c := range run.Policy.Convergence {
			if c.Network == policyMany && c.Change == what {
				changes = c
			}
		}
		p99 := func(values []float64) float64 { return stats.Quantile(values, 0.99) }
		list = append(list, atMost("New connections obey, "+title+", P99", 100, changes.Milliseconds, changes.Error != "", p99))
	}
	return list
}

// beelinesWrong counts the wrong answers of all contenders that are Beeline, of those that are known.
func beelinesWrong(run *result.Run) (stats.Interval, bool) {
	wrong, asked := 0, 0
	for _, t := range run.Policy.Connectivity {
		if !strings.HasPrefix(t.Network, subject) {
			continue
		}
		for _, a := range t.Connections {
			if a.Unknown != "" {
				continue
			}
			asked++
			if a.Connected != a.Allowed {
				wrong++
			}
		}
	}
	return stats.Interval{Median: float64(wrong), N: asked}, asked > 0
}

// beelinesSilent says whether a contender that is Beeline has not answered, or not everything.
func beelinesSilent(run *result.Run) bool {
	return slices.ContainsFunc(run.Policy.Connectivity, func(t result.Connectivity) bool { return strings.HasPrefix(t.Network, subject) && t.Error != "" })
}

// beelinesUnknown counts the answers of all contenders that are Beeline of which nobody knows whether they are right.
func beelinesUnknown(run *result.Run) (n int) {
	for _, t := range run.Policy.Connectivity {
		for _, a := range t.Connections {
			if strings.HasPrefix(t.Network, subject) && a.Unknown != "" {
				n++
			}
		}
	}
	return n
}
