package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// aaCheck compares the node with itself: its two measurements in every round.
type aaCheck struct {
	figures []figure
	worst   float64 // largest |ratio − 1| of the medians
	decided int     // intervals that exclude 1; chance excludes it in 5 % of the figures
	widest  *figure // the figure with the widest interval, or nil
}

func (v *view) aaCheck() aaCheck {
	var a aaCheck
	for _, f := range v.figures {
		i := ratioOf(f.again)
		if i.N == 0 {
			continue
		}
		a.figures = append(a.figures, f)
		a.worst = max(a.worst, math.Abs(i.Median-1))
		if i.Low == nil || i.High == nil {
			continue
		}
		if a.widest == nil || f.aaDistance() > a.widest.aaDistance() {
			a.widest = &f
		}
		if !i.Undecided() {
			a.decided++
		}
	}
	return a
}

// aaDistance is the distance from 1 of the farther end of the A/A interval, 0 without an interval.
func (f figure) aaDistance() float64 {
	i := ratioOf(f.again)
	if i.Low == nil || i.High == nil {
		return 0
	}
	return max(math.Abs(*i.Low-1), math.Abs(*i.High-1))
}

func (a aaCheck) String() string {
	s := "A/A check, node against node: "
	if len(a.figures) == 0 {
		return s + "not in this run."
	}
	s += fmt.Sprintf("in %s the medians differ by at most %s", plural(len(a.figures), "figure"), percent(a.worst))
	if a.widest == nil {
		return s + "; too few rounds for an interval."
	}
	if a.decided == 0 {
		s += ", and every interval includes 1."
	} else {
		s += fmt.Sprintf("; %d of %s exclude 1 (chance excludes it in 5 %%).", a.decided, plural(len(a.figures), "interval"))
	}
	i := ratioOf(a.widest.again)
	return s + fmt.Sprintf(" The widest is %s: %s, %s.", interval(i.Low, i.High), a.widest.work.Title, context(a.widest.key))
}

// trust has the checks of the measurement itself.
func (v *view) trust() Section {
	return Section{ID: "trust", Title: "Trust", Tables: []*Table{v.aaTable(), v.crossCheckTable(), v.roundTable(), v.failureTable()}}
}

func (v *view) aaTable() *Table {
	a := v.aaCheck()
	t := &Table{Title: "A/A check", In: OnHTML, Notes: []string{a.String()},
		Columns: []Column{texts("Figure"), {Title: "ratio"}, {Title: "95 % interval"}}}
	for _, f := range a.figures {
		name := f.title()
		if first := a.figures[0].key; f.key.Path != first.Path {
			name += ", " + string(f.key.Path)
		}
		t.add(name, split(ratioCell(ratioOf(f.again)))...)
	}
	t.ratioChart(0, chart.Ratio{Baseline: "no difference", Text: chart.Text{
		ID: "again", Title: "A/A check: node against node", Desc: "Each row is one figure measured twice on the same network. A sound measurement shows 1 within the interval.",
	}})
	return t
}

// crossCheckTable lists the checks; a terminal shows how many agree, and the cautions those that do not.
func (v *view) crossCheckTable() *Table {
	t := &Table{Title: "Cross-check: figures that must agree", In: OnText | OnHTML}
	all := &Table{Fold: "All checks", Columns: []Column{{Title: "Network", Left: true, Code: true}, texts("path"), texts("check"),
		{Title: "expected"}, {Title: "measured"}, {Title: "deviation"}, texts("verdict")}}
	agree, largest := 0, 0.0
	for _, c := range v.run.CrossChecks {
		verdict := Cell{Text: "disagree", Wrong: true}
		if c.Agree {
			agree++
			verdict = Cell{Text: "agree"}
		}
		if c.Expected != 0 {
			largest = max(largest, math.Abs(c.Measured/c.Expected-1))
		}
		all.add(c.Network, append(cells(string(c.Path), c.Check, quantity(c.Expected, "/s"), quantity(c.Measured, "/s"), deviation(c)), verdict)...)
	}
	if len(all.Rows) > 0 {
		t.Notes = []string{fmt.Sprintf("%d of %s agree, the largest deviation is %s.", agree, plural(len(all.Rows), "check"), percent(largest))}
		t.More = []*Table{all}
	}
	return t
}

func deviation(c result.CrossCheck) string {
	if c.Expected == 0 {
		return dash
	}
	s := fmt.Sprintf("%+.1f %%", (c.Measured/c.Expected-1)*100)
	if s == "-0.0 %" || s == "+0.0 %" {
		return "0.0 %"
	}
	return s
}

// roundTable lists the rounds. Only the page has those that count.
func (v *view) roundTable() *Table {
	turns := 0
	head := []Column{{Title: "Round", Left: true}, texts("discarded"), {Title: "steal"}, {Title: "foreign load"}}
	t := &Table{Title: "Rounds", In: OnText | OnHTML, Columns: head}
	all := &Table{Fold: "All rounds", Columns: append(slices.Clone(head), texts("started"), Column{Title: "seconds"}, texts("order"))}
	for _, r := range v.run.Rounds {
		reason := r.Discarded
		for _, turn := range r.Turns {
			if turn.Discarded != "" {
				turns++
				if r.Discarded == "" {
					reason += fmt.Sprintf("%s: %s. ", turn.Network, turn.Discarded)
				}
			}
		}
		started := ""
		if !r.Started.IsZero() {
			started = r.Started.UTC().Format("15:04:05")
		}
		row := []Cell{{Text: reason}, text(percent(r.Steal)), text(percent(r.Foreign))}
		all.add(fmt.Sprint(r.Index), append(row, cells(started, significant(r.Seconds), strings.Join(r.Order, ", "))...)...).Discarded = r.Discarded != ""
		if r.Discarded != "" {
			t.add(fmt.Sprint(r.Index), row...)
		}
	}
	note := fmt.Sprintf("%s, %d discarded", plural(len(v.run.Rounds), "round"), len(v.discarded))
	if turns > 0 {
		note += fmt.Sprintf("; %s of single networks discarded", plural(turns, "turn"))
	}
	note += ". No sample was removed for its value."
	if v.run.Settings.Gate != "" {
		note += " The rule, fixed before the run: " + v.run.Settings.Gate + "."
	}
	t.Notes = []string{note}
	if len(all.Rows) > 0 {
		t.More = []*Table{all}
	}
	return t
}

// failureTable groups failed samples by reason.
func (v *view) failureTable() *Table {
	t := &Table{Title: "Failed samples", In: OnText | OnHTML, Columns: []Column{{Title: "Network", Left: true, Code: true}, texts("figure"), texts("rounds"), texts("error")}}
	type group struct {
		key            stats.Key
		network, error string
	}
	rows := map[group]int{}
	for i := range v.run.Samples {
		s := &v.run.Samples[i]
		if s.Error == "" || s.Round < 0 {
			continue
		}
		g := group{stats.KeyOf(s), s.Network, s.Error}
		if at, ok := rows[g]; ok {
			t.Rows[at].Cells[1].Text += fmt.Sprintf(", %d", s.Round)
			continue
		}
		rows[g] = len(t.Rows)
		t.add(s.Network, cells(v.workload(s.Workload).Title+" · "+context(g.key), fmt.Sprint(s.Round), s.Error)...)
	}
	return t
}

// wideAA is the distance from 1 at which the A/A interval of a figure deserves a caution.
const wideAA = 0.1

// cautions are properties of the run that weaken its figures.
func (v *view) cautions() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	rounds, discarded := len(v.run.Rounds), len(v.discarded)
	if kept := rounds - discarded; kept > 0 && kept < 6 {
		add("Only %s counted: a 95 %% interval of a median needs at least 6, so no difference is decided.", plural(kept, "round"))
	}
	if discarded > 0 && discarded*4 >= rounds {
		add("%d of %s were discarded by the noise gate: the machine was busy.", discarded, plural(rounds, "round"))
	}
	if a := v.aaCheck(); a.worst > 0.02 {
		add("Measured twice, the node differs from itself by up to %s: smaller differences mean nothing.", percent(a.worst))
	}
	if names := v.wideFigures(); names != "" {
		add("The A/A interval is wide for %s: read intervals there, not single ratios.", names)
	}
	list = append(list, clusterCautions(v.run.Cluster)...)
	for _, c := range v.run.CrossChecks {
		if !c.Agree {
			add("Cross-check of %s (%s) does not agree: %s expected, %s measured.", c.Network, c.Path, quantity(c.Expected, "/s"), quantity(c.Measured, "/s"))
		}
	}
	if n := unknownConnections(v.run, ""); n > 0 {
		add("The outcome of %s is not known: the table of connections names the reason.", plural(n, "connection"))
	}
	if n := len(v.failureTable().Rows); n > 0 {
		add("Samples failed, for %s.", plural(n, "reason"))
	}
	return list
}

// wideFigures names the figures with a wide A/A interval, the worst three with their interval.
func (v *view) wideFigures() string {
	const most = 3
	figures := slices.DeleteFunc(slices.Clone(v.figures), func(f figure) bool { return f.aaDistance() <= wideAA })
	slices.SortStableFunc(figures, func(a, b figure) int { return cmp.Compare(b.aaDistance(), a.aaDistance()) })
	var names []string
	for i, f := range figures {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(figures)-most))
			break
		}
		names = append(names, fmt.Sprintf("%s %s (%s)", f.work.Title, f.key.Path, interval(f.again.RatioLow, f.again.RatioHigh)))
	}
	return strings.Join(names, "; ")
}
