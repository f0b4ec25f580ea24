package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// coarse is how far a node's interval against itself may stray before a figure is called imprecise.
const coarse = 0.1

// cautions are what a reader must know before believing the figures.
func (v *view) cautions() []string {
	var list []string
	kept := len(v.run.Rounds) - len(v.discarded)
	if kept > 0 && kept < 6 {
		list = append(list, fmt.Sprintf("Only %s counted: a 95 %% interval of a median needs at least 6, so nothing here is decided.", plural(kept, "round")))
	}
	if n := len(v.discarded); n > 0 && n*4 >= len(v.run.Rounds) {
		list = append(list, fmt.Sprintf("%d of %s were discarded by the noise gate: the machine was busy.", n, plural(len(v.run.Rounds), "round")))
	}
	if a := v.againCheck(); a.n > 0 && a.worst > 0.02 {
		list = append(list, fmt.Sprintf("Measured twice, the node itself differs by up to %s: smaller differences mean nothing.", percent(a.worst)))
	}
	if text := v.imprecise(); text != "" {
		list = append(list, text)
	}
	list = append(list, clusterCautions(v.run.Cluster)...)
	for _, c := range v.run.CrossChecks {
		if !c.Agree {
			list = append(list, fmt.Sprintf("Cross-check of %s (%s) does not agree: %s expected, %s measured.", c.Network, c.Path, quantity(c.Expected, "/s"), quantity(c.Measured, "/s")))
		}
	}
	if n := v.unknownConnections(); n > 0 {
		list = append(list, fmt.Sprintf("Of %s it is not known whether policies are enforced: the table of connections says why.", plural(n, "connection")))
	}
	if n := len(v.failures()); n > 0 {
		list = append(list, fmt.Sprintf("Samples failed, for %s.", plural(n, "reason")))
	}
	return list
}

// unknownConnections counts the answers about policies that nobody knows.
func (v *view) unknownConnections() (n int) {
	if v.run.Policy == nil {
		return 0
	}
	for _, t := range v.run.Policy.Connectivity {
		for _, a := range t.Connections {
			if a.Unknown != "" {
				n++
			}
		}
	}
	return n
}

// imprecise names the figures in which even the node differs from itself, the worst three with how much.
func (v *view) imprecise() string {
	const most = 3
	figures := slices.DeleteFunc(slices.Clone(v.figures), func(f figure) bool { return f.strays() <= coarse })
	slices.SortStableFunc(figures, func(a, b figure) int { return cmp.Compare(b.strays(), a.strays()) })
	var names []string
	for i, f := range figures {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(figures)-most))
			break
		}
		names = append(names, fmt.Sprintf("%s %s (%s)", f.Title, f.path, interval(f.again.RatioLow, f.again.RatioHigh)))
	}
	if len(names) == 0 {
		return ""
	}
	return "The node's interval against itself is wide for " + strings.Join(names, "; ") + ": read intervals there, not single ratios."
}
