package report

import "strings"

// policy prints what the policy bench says beside its figures.
func (t *terminal) policy(v *view) {
	s := v.policy()
	if s == nil {
		return
	}
	if s.Against != nil {
		narrow := *t
		for _, r := range s.Against.Rows {
			narrow.names = max(narrow.names, len([]rune(r.Name)))
		}
		narrow.grid(*s.Against)
	}
	t.truth(s.Truth)
	t.changes("Until new connections obey a change, from the moment at which the API server has it", s.Changes)
	if s.Tables != nil {
		t.grid(*s.Tables)
	}
	if len(s.Compiled) > 0 {
		t.printf("")
		t.printf("Policies × pods into what is enforced (1 MB = 10⁶ bytes)")
		for _, r := range s.Compiled {
			t.printf("  %s %s, %s of the pods here: from nothing %s, of that the compiler %s; one label change %s; tables %s",
				pad(r.Name, t.names), r.Among, r.Local, r.Scratch, r.Compiler, r.Change, r.Tables)
			if r.Note != "" {
				t.wrapped("      ", r.Note)
			}
		}
	}
}

// truth prints one line for each connection: what has to be, and who differs.
func (t *terminal) truth(table *truthTable) {
	if table == nil {
		return
	}
	t.printf("")
	t.printf("Which connections work, with the same policies everywhere")
	for _, r := range table.Rows {
		verdict, wrong := table.Verdict(r)
		if wrong {
			verdict = "WRONG, has to be \"" + r.Want + "\": " + verdict
		}
		t.printf("  %s %s %s %s", pad(clip(r.What, 56), 56), pad(r.Path, 10), pad(r.Protocol, 8), verdict)
	}
	for _, w := range table.Wrong {
		t.printf("  %s %s", pad(w.Name, t.names), w.Value)
	}
	for _, n := range table.Notes {
		t.wrapped("  "+pad(n.Name, t.names)+" ", n.Value)
	}
}

// policy writes the same as tables for a README.
func (m *markdown) policy(v *view) {
	s := v.policy()
	if s == nil {
		return
	}
	if s.Against != nil {
		m.grid(*s.Against)
	}
	if t := s.Truth; t != nil {
		m.printf("")
		m.printf("**Which connections work, with the same policies everywhere**")
		m.printf("")
		for _, w := range t.Wrong {
			m.printf("* `%s`: %s", w.Name, w.Value)
		}
		for _, n := range t.Notes {
			m.printf("* `%s`: %s", n.Name, n.Value)
		}
		m.printf("")
		m.cells("Connection", "To", "Port", "From → to", "Has to", "")
		m.cells("---", "---", "---", "---", "---", "---")
		for _, r := range t.Rows {
			verdict, wrong := t.Verdict(r)
			if wrong {
				verdict = "**wrong:** " + verdict
			}
			m.cells(r.What, r.Path, r.Protocol, r.Ends, strings.Replace(r.Want, "works", "work", 1), verdict)
		}
	}
	m.changes("Until new connections obey a change", s.Changes)
	if s.Tables != nil {
		m.grid(*s.Tables)
	}
	if len(s.Compiled) > 0 {
		m.printf("")
		m.printf("**Policies × pods into what is enforced**")
		m.printf("")
		m.cells("Network", "Policies × pods", "of them here", "From nothing", "the compiler's part", "One label change", "Tables", "")
		m.cells("---", "---:", "---:", "---:", "---:", "---:", "---:", "---")
		for _, r := range s.Compiled {
			m.cells("`"+r.Name+"`", r.Among, r.Local, r.Scratch, r.Compiler, r.Change, r.Tables, r.Note)
		}
	}
}
