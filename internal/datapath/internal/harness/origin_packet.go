package harness

import (
	"testing"
)

// ForgetNAT removes all connections that translation knows.
func (r *Harness) ForgetNAT(t *testing.T) {
	t.Helper()
	if err := ClearMap(r.D.Objects.Maps.NatPending); err != nil {
		t.Fatal(err)
	}
	if err := ClearMap(r.D.Objects.Maps.Nat); err != nil {
		t.Fatal(err)
	}
}
