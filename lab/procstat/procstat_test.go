package procstat

import (
	"math"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
)

const statBefore = `cpu  300 0 300 3000 0 0 0 0 0 0
cpu0 100 10 100 1000 20 5 50 7 0 0
cpu1 200 0 200 2000 0 0 0 0 0 0
intr 1 2 3
`

const statAfter = `cpu  300 0 300 3000 0 0 0 0 0 0
cpu0 110 15 130 1020 10 6 90 9 0 0
cpu1 300 0 200 2100 0 0 0 0 0 0
intr 1 2 3
`

func TestParseAndDelta(t *testing.T) {
	before, err := Parse(strings.NewReader(statBefore))
	if err != nil {
		t.Fatal(err)
	}
	after, err := Parse(strings.NewReader(statAfter))
	if err != nil {
		t.Fatal(err)
	}
	// iowait went back by 10, which counts as 0.
	want := result.CPU{User: 0.15, System: 0.3, Softirq: 0.41, Steal: 0.02, Idle: 0.2}
	if got := Delta(before, after, 0).CPUTime(); got != want {
		t.Errorf("CPU 0: %+v, want %+v", got, want)
	}
	all := Delta(before, after)
	if got := all.CPUTime(); math.Abs(got.User-1.15) > 1e-9 || math.Abs(got.Idle-1.2) > 1e-9 {
		t.Errorf("all: %+v", got)
	}
	if all.Busy() != 186 || all.Total() != 308 {
		t.Errorf("%d of %d ticks busy, want 186 of 308", all.Busy(), all.Total())
	}
	for _, bad := range []string{"", "cpu 1 2 3\n", "cpu0 1 2\n", "cpu0 1 2 3 4 5 6 7 x\n"} {
		if _, err := Parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestReadIsThisMachine(t *testing.T) {
	cpus, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	for cpu, ticks := range cpus {
		if ticks.Total() == 0 {
			t.Errorf("CPU %d: no time passed", cpu)
		}
	}
}
