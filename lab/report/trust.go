package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/stats"
)

// aaCheck compares the node with itself: its two measurements in every round.
type aaCheck struct {
	figures []figure // the one with the widest interval first
	worst   float64  // largest |ratio − 1| of the medians
	spans   int      // intervals
	decided int      // intervals that exclude 1; chance excludes it in 5 % of the figures
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
		if i.Low != nil && i.High != nil {
			a.spans++
			if !i.Undecided() {
				a.decided++
			}
		}
	}
	slices.SortStableFunc(a.figures, func(a, b figure) int { return cmp.Compare(b.aaDistance(), a.aaDistance()) })
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
	if a.spans == 0 {
		return s + "; too few rounds for an interval."
	}
	if a.decided == 0 {
		s += ", and every interval includes 1."
	} else {
		s += fmt.Sprintf("; %d of %s exclude 1 (chance excludes it in 5 %%).", a.decided, plural(a.spans, "interval"))
	}
	widest := a.figures[0]
	return s + fmt.Sprintf(" The widest is %s: %s, %s.", interval(widest.again.RatioLow, widest.again.RatioHigh), widest.work.Title, context(widest.key))
}

// trust has the checks of the measurement itself.
func (v *view) trust() Section {
	return Section{ID: "trust", Title: "Trust", Tables: []*Table{v.aaTable(), v.crossCheckTable(), v.roundTable(), v.failureTable()}}
}

func (v *view) aaTable() *Table {
	t := newTable(PageOnly, "A/A check", "", "Figure", "ratio", "95 % interval")
	for _, f := range v.aaCheck().figures {
		i := ratioOf(f.again)
		t.add(f.title()+", "+string(f.key.Path), ratioCell(i), interval(i.Low, i.High))
	}
	t.ratioChart(0, chart.Rows{Baseline: "no difference", Text: chart.Text{
		ID: "again", Title: "A/A check: node against node", Desc: "Each row is one figure measured twice on the same network. A sound measurement shows 1 within the interval.",
	}}, "")
	return t
}

// crossCheckTable lists the figures that must agree.
func (v *view) crossCheckTable() *Table {
	t := newTable(PageOnly, "Cross-check: figures that must agree", "", "Network", "path", "check", "expected", "measured", "deviation", "verdict")
	t.Fold = "All checks"
	for _, c := range v.run.CrossChecks {
		verdict, deviation := Cell{Text: "disagree", Class: "wrong"}, dash
		if c.Agree {
			verdict = Cell{Text: "agree"}
		}
		if c.Expected != 0 {
			deviation = percent(c.Measured/c.Expected - 1)
		}
		t.add(c.Network, c.Path, c.Check, quantity(c.Expected, "/s"), quantity(c.Measured, "/s"), deviation, verdict)
	}
	return t
}

// roundTable lists the rounds, and why turns in them or whole rounds were discarded.
func (v *view) roundTable() *Table {
	t := newTable(PageOnly, "Rounds", "", "Round", "discarded", "steal", "foreign load", "started", "seconds", "order")
	t.Fold = "All rounds"
	for _, r := range v.run.Rounds {
		reasons := []string{r.Discarded}
		for _, turn := range r.Turns {
			if turn.Discarded != "" && r.Discarded == "" {
				reasons = append(reasons, turn.Network+": "+turn.Discarded)
			}
		}
		row := t.add(fmt.Sprint(r.Index), listed(reasons...), percent(r.Steal), percent(r.Foreign), r.Started.UTC().Format("15:04:05"),
			significant(r.Seconds), strings.Join(r.Order, ", "))
		if r.Discarded != "" {
			row.Class = "unusable"
		}
	}
	return t
}

// roundNote says how many rounds and turns were discarded, and by which rule.
func (v *view) roundNote() string {
	turns := 0
	for _, r := range v.run.Rounds {
		for _, turn := range r.Turns {
			if turn.Discarded != "" {
				turns++
			}
		}
	}
	note := fmt.Sprintf("%s, %d discarded; %s of single networks discarded. No sample was removed for its value.",
		plural(len(v.run.Rounds), "round"), len(v.discarded), plural(turns, "turn"))
	if v.run.Settings.Gate != "" {
		note += " The rule, fixed before the run: " + v.run.Settings.Gate + "."
	}
	return note
}

// failureTable groups failed samples by reason.
func (v *view) failureTable() *Table {
	t := newTable(Detail, "Failed samples", "", "Network", "figure", "rounds", "error")
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
		t.add(s.Network, listed(v.workload(s.Workload).Title, context(g.key)), s.Round, s.Error)
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
	a := v.aaCheck()
	if a.worst > 0.02 {
		add("Measured twice, the node differs from itself by up to %s: smaller differences mean nothing.", percent(a.worst))
	}
	if names := a.wideFigures(); names != "" {
		add("The A/A interval is wide for %s: read intervals there, not single ratios.", names)
	}
	list = append(list, clusterCautions(v.run.Cluster)...)
	for _, c := range v.run.CrossChecks {
		if !c.Agree {
			add("Cross-check of %s (%s) does not agree: %s expected, %s measured.", c.Network, c.Path, quantity(c.Expected, "/s"), quantity(c.Measured, "/s"))
		}
	}
	if n := v.unknownConnections(); n > 0 {
		add("The outcome of %s is not known: the table of connections names the reason.", plural(n, "connection"))
	}
	if n := len(v.failureTable().Rows); n > 0 {
		add("Samples failed, for %s.", plural(n, "reason"))
	}
	return list
}

// wideFigures names the figures with a wide A/A interval, the worst three with their interval.
func (a aaCheck) wideFigures() string {
	const most = 3
	var names []string
	for _, f := range a.figures {
		if f.aaDistance() > wideAA {
			names = append(names, fmt.Sprintf("%s %s (%s)", f.work.Title, f.key.Path, interval(f.again.RatioLow, f.again.RatioHigh)))
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, "; ")
}

func (v *view) unknownConnections() int {
	if v.run.Policy == nil {
		return 0
	}
	n := 0
	for _, c := range v.run.Policy.Connectivity {
		_, _, unclear, _ := tally(c.Connections)
		n += unclear
	}
	return n
}
