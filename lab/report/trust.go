package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// trust has the checks of the measurement itself.
func (v *view) trust() Section {
	return Section{ID: "trust", Title: "Trust", Tables: []*Table{v.crossCheckTable(), v.roundTable(), v.failureTable()}}
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

// cautions are properties of the run that weaken its figures.
func (v *view) cautions() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	rounds, discarded := len(v.run.Rounds), len(v.discarded)
	if emulated(v.run.Environment) {
		add("The processor is emulated: figures show that things work, and no figure is a speed.")
	}
	if kept := rounds - discarded; kept > 0 && kept < 6 {
		add("Only %s counted: a 95 %% interval of a median needs at least 6, so no difference is decided.", plural(kept, "round"))
	}
	if discarded > 0 && discarded*4 >= rounds {
		add("%d of %s were discarded by the noise gate: the machine was busy.", discarded, plural(rounds, "round"))
	}
	worst := 0.0
	for _, f := range v.figures {
		if i := ratioOf(f.row(stats.Again).summary); i.N > 0 {
			worst = max(worst, math.Abs(i.Median-1))
		}
	}
	if worst > 0.02 {
		add("Measured twice, the node differs from itself by up to %s: smaller differences mean nothing.", percent(worst))
	}
	list = append(list, clusterCautions(v.run.Cluster)...)
	for _, c := range v.run.CrossChecks {
		if !c.Agree {
			add("Cross-check of %s (%s) does not agree: %s expected, %s measured.", c.Network, c.Path, quantity(c.Expected, "/s"), quantity(c.Measured, "/s"))
		}
	}
	if n := len(v.failureTable().Rows); n > 0 {
		add("Samples failed, for %s.", plural(n, "reason"))
	}
	return list
}

// emulated reports whether the processor is QEMU's TCG, which translates instructions.
func emulated(e result.Environment) bool { return strings.Contains(e.CPU, "QEMU TCG") }
