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
	const rr, crr, stream, outside = "tcp_rr", "tcp_crr", "tcp_stream_128k", "tcp_crr_node"
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
			list = append(list, promise{what: what + ", " + title, bound: bounds[w], got: func(v *view) (stats.Interval, bool) {
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
	list = append(list, promise{
		what: "100,000 ipBlocks against 1, TCP_CRR to an address that is no pod's", bound: 0.98, got: func(v *view) (stats.Interval, bool) {
			return v.within(outside, blocksMany, outside, blocksOne, v.placement())
		},
	})
	against("Flows on, by default, with policies", withPolicy, flowsOff, same(0.97))
	against("Flows of all pods, without policies", allFlows, subject, same(0.97))
	list = append(list, compilePromises(run)...)
	list = append(list, changePromises(run)...)
	return append(list, promise{
		what: "Connections that are not as the policies say, of all of Beeline's contenders", atMost: true, show: func(n float64) string { return fmt.Sprint(int(n)) },
		got: func(*view) (stats.Interval, bool) { return beelinesWrong(run) },
	})
}

func compilePromises(run *result.Run) []promise {
	compiled := func(of func(result.PolicyCompile) []float64) func(*view) (stats.Interval, bool) {
		return func(*view) (stats.Interval, bool) {
			for _, c := range run.Policy.Compiled {
				if values := of(c); c.Contender == policyMany && len(values) > 0 {
					return exactly(slices.Max(values), len(values))
				}
			}
			return stats.Interval{}, false
		}
	}
	return []promise{
		{
			what: "1,000 policies × 1,000 pods from nothing until they are in the kernel, the slowest", bound: 1000, atMost: true, show: inUnit("ms"),
			got: compiled(func(c result.PolicyCompile) []float64 { return c.ScratchMilliseconds }),
		},
		{
			what: "One label change among them until it is in the kernel, the slowest", bound: 100, atMost: true, show: inUnit("ms"),
			got: compiled(func(c result.PolicyCompile) []float64 { return c.ChangeMilliseconds }),
		},
		{
			what: "Tables of policy with them, in MB of 10⁶ bytes", bound: 32, atMost: true, show: inUnit("MB"),
			got: compiled(func(c result.PolicyCompile) []float64 {
				if c.TableBytes == 0 {
					return nil
				}
				return []float64{float64(c.TableBytes) / 1e6}
			}),
		},
	}
}

// changePromises are that new connections obey each kind of change soon.
func changePromises(run *result.Run) []promise {
	var list []promise
	for _, what := range []result.PolicyHappening{result.LabelForbids, result.LabelAllows, result.PolicyAdded, result.PolicyRemoved} {
		title := newPolicyChangeRow(result.PolicyChange{What: what}).What
		list = append(list, promise{
			what: "New connections obey, " + title + ", P99", bound: 100, atMost: true, show: inUnit("ms"),
			got: func(*view) (stats.Interval, bool) {
				for _, c := range run.Policy.Changes {
					if c.Contender == policyMany && c.What == what && len(c.Milliseconds) > 0 {
						return exactly(stats.Quantile(c.Milliseconds, 0.99), len(c.Milliseconds))
					}
				}
				return stats.Interval{}, false
			},
		})
	}
	return list
}

// beelinesWrong counts the wrong answers of all contenders that are Beeline.
func beelinesWrong(run *result.Run) (stats.Interval, bool) {
	wrong, asked := 0, 0
	for _, t := range run.Policy.Truth {
		if !strings.HasPrefix(t.Contender, subject) {
			continue
		}
		asked += len(t.Answers)
		for _, a := range t.Answers {
			if a.Works != a.Want {
				wrong++
			}
		}
	}
	return stats.Interval{Median: float64(wrong), N: asked}, asked > 0
}
