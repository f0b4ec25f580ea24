package datapath_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

// The name of a drop reason is its C name in lower case, so that a metric leads to the line that drops.
func TestDropReasonNames(t *testing.T) {
	reasons := fixtures.EnumOf(t, "drop_reason", "DROP_")
	const all = int(bpf.DropReasonDROP_MAX)
	if len(flow.DropReasons()) != all-1 || len(reasons) != all+1 || reasons[all] != "max" {
		t.Fatalf("%d names in Go, and in C %v", len(flow.DropReasons()), reasons)
	}
	meanings := map[string]bool{}
	for i := range all {
		r := flow.DropReason(i)
		if r.String() != reasons[i] {
			t.Errorf("reason %d is %q in Go and %q in C", i, r, reasons[i])
		}
		if m := r.Meaning(); len(m) < 10 || meanings[m] {
			t.Errorf("reason %s has no meaning of its own: %q", r, m)
		}
		meanings[r.Meaning()] = true
	}
	if newer := flow.DropReason(all); newer.String() != "reason_"+strconv.Itoa(all) || newer.Meaning() == "" {
		t.Errorf("a reason of a newer datapath is %q: %q", newer, newer.Meaning())
	}
}

func TestProgramNames(t *testing.T) {
	programs := fixtures.EnumOf(t, "program", "PROGRAM_")
	if len(programs) != len(bpf.ProgramNames)+1 || programs[len(bpf.ProgramNames)] != "max" {
		t.Fatalf("%d names in Go, and in C %v", len(bpf.ProgramNames), programs)
	}
	spec, err := bpf.Load()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range bpf.ProgramNames {
		if name != programs[i] {
			t.Errorf("program %d is %q in Go and %q in C", i, name, programs[i])
		}
		if spec.Programs[name] == nil {
			t.Errorf("the object has no program %s", name)
		}
		if len(name) > 15 {
			t.Errorf("%s is too long: bpftool shows 15 characters", name)
		}
	}
	for _, name := range bpf.SocketProgramNames {
		if spec.Programs[name] == nil || len(name) > 15 {
			t.Errorf("%s is not a program at sockets", name)
		}
	}
	agents := config.Datapath{Policy: true, Flows: config.FlowsPolicy}.AgentPrograms()
	for _, name := range agents {
		if spec.Programs[name] == nil || len(name) > 15 {
			t.Errorf("%s is not a program that the agent runs", name)
		}
	}
	if named := len(bpf.ProgramNames) + len(bpf.SocketProgramNames) + len(agents); len(spec.Programs) != named {
		t.Errorf("the object has %d programs, %d are named", len(spec.Programs), named)
	}
}

// Every map of the object is either pinned or private to one load.
func TestPinnedMaps(t *testing.T) {
	spec, err := bpf.Load()
	if err != nil {
		t.Fatal(err)
	}
	pinned := map[string]bool{}
	for _, name := range load.PinnedMaps {
		pinned[name] = true
	}
	for name := range spec.Maps {
		if !pinned[name] && !strings.HasPrefix(name, ".rodata") && !slices.Contains(load.PrivateMaps, name) {
			t.Errorf("map %s would be lost with the agent", name)
		}
		delete(pinned, name)
	}
	if len(pinned) > 0 {
		t.Errorf("the object has no maps %v", pinned)
	}
}
