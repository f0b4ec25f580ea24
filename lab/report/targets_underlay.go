package report

import (
	"slices"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Networks that targets of pods on the underlay refer to.
const (
	plainMacvlan = "macvlan"
	onMacvlan    = "beeline-macvlan"
	onRouted     = "beeline-routed"
	sameNode     = "beeline-same-node"
)

// has reports whether a network took part in the run.
func (v *view) has(network string) bool {
	return slices.ContainsFunc(v.run.Networks, func(n result.Network) bool { return n.Name == network && n.Unsupported == "" })
}

// networkTargets are those of the network suite, for the networks with IPPools that took part.
func (v *view) networkTargets() (list []target) {
	against := func(name string, path result.Path, a, b string, bounds map[string]float64) {
		for _, w := range []string{"tcp_stream_128k", "tcp_rr", "tcp_rr_4k", "tcp_crr"} {
			if bound := bounds[w]; bound > 0 && v.has(a) && v.has(b) {
				rows := v.figureOn(w, path, v.placement())
				list = append(list, target{name: name + ", " + v.workload(w).Title, bound: bound, measured: paired(rows.row(a).points, rows.row(b).points)})
			}
		}
	}
	each := func(bound float64) map[string]float64 {
		return map[string]float64{"tcp_stream_128k": bound, "tcp_rr": bound, "tcp_crr": bound}
	}
	against("macvlan pods against node", result.CrossNode, onMacvlan, stats.Baseline, map[string]float64{"tcp_stream_128k": 0.95, "tcp_rr": 0.95, "tcp_crr": 0.93})
	against("macvlan pods against the plain macvlan plugin", result.CrossNode, onMacvlan, plainMacvlan, each(0.97))
	against("macvlan pods of one node against the plain macvlan plugin", result.SameNode, onMacvlan, plainMacvlan, map[string]float64{"tcp_rr": 0.94})
	against("Routed underlay against pods of the cluster range", result.CrossNode, onRouted, beeline, each(0.99))
	against("Same-node sockets against packets", result.SameNode, sameNode, beeline, map[string]float64{"tcp_rr": 1.5, "tcp_rr_4k": 1.9})
	for _, name := range []string{onMacvlan, onRouted} {
		if !v.has(name) {
			continue
		}
		f := find(v.run.Footprints, func(f result.Footprint) bool { return f.Network == name })
		list = append(list,
			times(name+": CNI ADD, P50", 40, "ms", f.AddMilliseconds, "", p50),
			times(name+": CNI ADD with probes, P50", 350, "ms", f.ProbedAddMilliseconds, "", p50),
		)
	}
	return list
}

// macvlanServiceTargets are those of Services from macvlan pods, if such took part.
func (v *view) macvlanServiceTargets() (list []target) {
	if !v.has(onMacvlan) {
		return nil
	}
	for _, of := range []string{"tcp_rr", "tcp_crr"} {
		list = append(list, target{
			name: "ClusterIP against pod IP, macvlan pods, " + v.workload(of).Title, bound: 0.98,
			measured: v.within(variant(v.run, of, 1), onMacvlan, of, onMacvlan, result.OneCore),
		})
	}
	return list
}
