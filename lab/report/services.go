package report

import (
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// services has what the services suite measures beside its figures.
func (v *view) services() Section {
	s := Section{ID: "services", Title: "Services"}
	if v.run.Services == nil {
		return s
	}
	s.Tables = append(s.Tables, v.clusterIP())
	for _, w := range v.run.Workloads {
		if w.Target == "" && len(levels(v.run, w.Name)) > 1 {
			s.Tables = append(s.Tables, v.curve(w))
		}
	}
	names := map[result.ServiceChange]string{result.ServiceCreated: "Service with 10 backends created", result.BackendAdded: "backend added"}
	times := convergenceTable("Time until traffic follows a change", "Services × backends")
	for _, c := range v.run.Services.Convergence {
		times.addTimes(c.Network, names[c.Change], product(c.Services, c.Backends), c.Milliseconds, c.Error)
	}
	sync := newTable(Everywhere, "All Services programmed from an empty start (1 MB = 10⁶ bytes)", "",
		"Network", "Services × backends", "time", "resident memory", "BPF maps", "note")
	for _, one := range v.run.Services.Syncs {
		seconds := ""
		if len(one.Seconds) > 0 {
			seconds = quantity(stats.MedianOf(one.Seconds).Median, "s")
		}
		if len(one.Seconds) > 1 {
			seconds += fmt.Sprintf(" (up to %s)", quantity(slices.Max(one.Seconds), "s"))
		}
		sync.add(one.Network, product(one.Services, one.Backends), seconds, megabytes(one.RSSBytes), megabytes(one.MapBytes), one.Error)
	}
	s.Tables = append(s.Tables, times, sync)
	return s
}

// clusterIP compares, within each network, the ClusterIP of the only Service with the pod's own address.
func (v *view) clusterIP() *Table {
	t := newTable(Everywhere, "Ratio of ClusterIP to pod IP", "", "Network")
	var of []string
	for _, w := range v.run.Workloads {
		if w.Target == "" && variant(v.run, w.Name, 1) != "" {
			of = append(of, w.Name)
			t.Columns = append(t.Columns, better(w.Title, w.Better))
		}
	}
	for _, name := range v.podNetworks() {
		var row []any
		for _, w := range of {
			row = append(row, v.within(variant(v.run, w, 1), name, w, name, v.placement()))
		}
		t.addMeasured(name, row...)
	}
	return t
}

// curve has one workload to a ClusterIP by the number of Services, and the ratio of the largest number to the smallest.
func (v *view) curve(w result.Workload) *Table {
	numbers := levels(v.run, w.Name)
	first, last := numbers[0], numbers[len(numbers)-1]
	t := newTable(Everywhere, w.Title+" to a ClusterIP, by the number of Services", "", "Network")
	for _, n := range numbers {
		t.Columns = append(t.Columns, count(n))
	}
	t.Columns = append(t.Columns, count(last)+" ÷ "+count(first))
	drawing := chart.Lines{
		Text: chart.Text{
			ID: "services-" + w.Name, Title: t.Title,
			Desc: "One line per network. Points are medians over the rounds with their 95 % intervals. The number of Services is on a logarithmic scale. The table has the same figures.",
		},
		X: "Services, logarithmic scale", Y: w.Unit, LabelX: tickIn(""), LabelY: tickIn(w.Unit),
	}
	for _, name := range v.podNetworks() {
		var row []any
		line := chart.Line{Label: name, Highlight: isBeeline(name)}
		gap := false
		for _, n := range numbers {
			i := v.median(variant(v.run, w.Name, n), name, v.placement())
			if i.N == 0 {
				row, gap = append(row, none), true
				continue
			}
			value := quantity(i.Median, w.Unit)
			row = append(row, value)
			line.Points = append(line.Points, chart.Point{
				X: float64(n), Y: i.Median, Low: i.Low, High: i.High, Apart: gap, Tip: fmt.Sprintf("%s, %s: %s", name, plural(n, "Service"), value),
			})
			gap = false
		}
		t.add(name, append(row, v.within(variant(v.run, w.Name, last), name, variant(v.run, w.Name, first), name, v.placement()))...)
		drawing.Lines = append(drawing.Lines, line)
	}
	t.Charts = []Chart{{SVG: drawing.SVG()}}
	return t
}

// levels are the numbers of Services that a workload was run with.
func levels(run *result.Run, of string) []int {
	var list []int
	for _, w := range run.Workloads {
		if w.Of == of && w.Target == result.ToClusterIP {
			list = append(list, w.Services)
		}
	}
	slices.Sort(list)
	return list
}

// variant is the name of the workload to a ClusterIP with that many Services, or empty.
func variant(run *result.Run, of string, services int) string {
	return find(run.Workloads, func(w result.Workload) bool {
		return w.Of == of && w.Target == result.ToClusterIP && w.Services == services
	}).Name
}

// find returns the first element that matches, or the zero value.
func find[T any](list []T, matches func(T) bool) (found T) {
	if i := slices.IndexFunc(list, matches); i >= 0 {
		found = list[i]
	}
	return found
}

// convergenceTable is a table of times from when the API server has a change until it has an effect.
func convergenceTable(title, size string) *Table {
	return newTable(Everywhere, title, "from when the API server has it", "Network", "change", size, "P50", "P99", "max", "n", "note")
}

func (t *Table) addTimes(network, change, size string, ms []float64, failed string) {
	t.add(network, change, size, quantile(ms, 0.5), quantile(ms, 0.99), quantile(ms, 1), len(ms), failed)
}
