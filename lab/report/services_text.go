package report

// services prints what the Service and the NodePort bench say beside their figures.
func (t *terminal) services(v *view) {
	s := v.services()
	if s == nil {
		return
	}
	if s.Direct != nil {
		t.grid(*s.Direct)
	}
	for _, c := range s.Curves {
		t.grid(c.grid)
	}
	t.changes("Until traffic follows a change, from the moment at which the API server has it", s.Changes)
	if len(s.Syncs) > 0 {
		t.printf("")
		t.printf("From the start of the program until all Services work; memory at rest (1 MB = 10⁶ bytes)")
		for _, r := range s.Syncs {
			t.printf("  %s %s: %s, resident %s, BPF maps %s", pad(r.Name, t.names), r.What, r.Seconds, r.RSS, r.Maps)
			if r.Note != "" {
				t.wrapped("      ", r.Note)
			}
		}
	}
}

// changes prints how long changes took to have an effect.
func (t *terminal) changes(title string, rows []changeRow) {
	if len(rows) == 0 {
		return
	}
	t.printf("")
	t.printf("%s", title)
	for _, r := range rows {
		t.printf("  %s %s among %s: P50 %s, P99 %s, max %s, n %s", pad(r.Name, t.names), r.What, r.Among, r.P50, r.P99, r.Max, r.N)
		if r.Note != "" {
			t.wrapped("      ", r.Note)
		}
	}
}

// gridColumn is how wide a column of a grid is at least.
const gridColumn = 12

// grid prints a table whose cells may be wide.
func (t *terminal) grid(g grid) {
	widths := make([]int, len(g.Columns))
	for i, column := range g.Columns {
		widths[i] = max(gridColumn, len([]rune(column))+2)
		for _, r := range g.Rows {
			widths[i] = max(widths[i], len([]rune(r.Cells[i]))+2)
		}
	}
	line := func(name string, cells []string) {
		text := "  " + pad(name, t.names)
		for i, cell := range cells {
			text += left(cell, widths[i])
		}
		t.printf("%s", text)
	}
	t.printf("")
	t.printf("%s", g.Title)
	line("", g.Columns)
	for _, r := range g.Rows {
		line(r.Name, r.Cells)
	}
}

// promises prints what was wanted beside what was found.
func (t *terminal) promises(v *view) {
	rows := v.promises()
	if len(rows) == 0 {
		return
	}
	t.printf("")
	t.printf("What is promised, and what this run found")
	for _, r := range rows {
		found := r.Got
		if r.Interval != dash {
			found += " (" + r.Interval + ")"
		}
		if r.isOpen() {
			found += "; decided: " + r.Decided
		}
		t.wrapped("  "+pad(r.Kept, 13), r.What+": wanted "+r.Wanted+", got "+found)
	}
}

// services writes the same as tables for a README.
func (m *markdown) services(v *view) {
	if rows := v.promises(); len(rows) > 0 {
		m.printf("")
		m.printf("**What is promised, and what this run found**")
		m.printf("")
		m.cells("", "wanted", "got", "95 % interval", "", "decided")
		m.cells("---", "---:", "---:", "---:", "---", "---")
		for _, r := range rows {
			m.cells(r.What, r.Wanted, r.Got, r.Interval, r.Kept, r.Decided)
		}
	}
	s := v.services()
	if s == nil {
		return
	}
	if s.Direct != nil {
		m.grid(*s.Direct)
	}
	for _, c := range s.Curves {
		m.grid(c.grid)
	}
	m.changes("Until traffic follows a change", s.Changes)
	if len(s.Syncs) > 0 {
		m.printf("")
		m.printf("**From the start of the program until all Services work**")
		m.printf("")
		m.cells("Network", "Services × backends", "Time", "Resident memory", "BPF maps", "")
		m.cells("---", "---:", "---:", "---:", "---:", "---")
		for _, r := range s.Syncs {
			m.cells("`"+r.Name+"`", r.What, r.Seconds, r.RSS, r.Maps, r.Note)
		}
	}
}

func (m *markdown) grid(g grid) {
	m.printf("")
	m.printf("**%s**", g.Title)
	m.printf("")
	head, rule := []string{"Network"}, []string{"---"}
	for _, c := range g.Columns {
		head, rule = append(head, c), append(rule, "---:")
	}
	m.cells(head...)
	m.cells(rule...)
	for _, r := range g.Rows {
		m.cells(append([]string{"`" + r.Name + "`"}, r.Cells...)...)
	}
}

// changes writes the same as a table.
func (m *markdown) changes(title string, rows []changeRow) {
	if len(rows) == 0 {
		return
	}
	m.printf("")
	m.printf("**%s**", title)
	m.printf("")
	m.cells("Network", "Change", "Among", "P50", "P99", "Max", "n", "")
	m.cells("---", "---", "---:", "---:", "---:", "---:", "---:", "---")
	for _, r := range rows {
		m.cells("`"+r.Name+"`", r.What, r.Among, r.P50, r.P99, r.Max, r.N, r.Note)
	}
}
