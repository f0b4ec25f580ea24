package workload

import (
	"testing"
)

func TestPacedNeedsRate(t *testing.T) {
	if _, err := NewPaced(0).Run(t.Context(), Request{}); err == nil {
		t.Error("a stream without a rate ran")
	}
}

func TestAtMTU(t *testing.T) {
	i := AtMTU{Workload: NewPaced(1), MTU: 9000}.Info()
	if i.Name != AtMTUName(PacedName, 9000) || i.Of != PacedName || i.MTU != 9000 || i.Work != "GB" {
		t.Errorf("%+v", i)
	}
}
