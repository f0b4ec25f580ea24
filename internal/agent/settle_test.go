package agent

import "testing"

// Two who undo each other's rules do not keep the node busy.
func TestContestedRulesAreRestoredSlowly(t *testing.T) {
	for _, c := range []struct {
		inARow int
		slow   bool
	}{{0, false}, {1, false}, {2, false}, {3, true}, {1000, true}} {
		a := &Agent{rulesChanges: c.inARow}
		if slow := a.settleTime() > settleTime; slow != c.slow {
			t.Errorf("after %d changes in a row it waits %s", c.inARow, a.settleTime())
		}
	}
}
