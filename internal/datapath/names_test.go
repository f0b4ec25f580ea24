package datapath

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// enumOf reads `enum name { PREFIX_X = n, … }` from a C source: the names without prefix, lower case, by value.
func enumOf(t *testing.T, file, name, prefix string) map[int]string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	body := regexp.MustCompile(`(?s)enum ` + name + ` \{(.*?)\};`).FindSubmatch(source)
	if body == nil {
		t.Fatalf("no enum %s in %s", name, file)
	}
	values := map[int]string{}
	for _, m := range regexp.MustCompile(prefix+`(\w+) =\s+(\d+),`).FindAllStringSubmatch(string(body[1]), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := values[n]; taken {
			t.Errorf("%s%s and %s%s are both %d", prefix, m[1], prefix, strings.ToUpper(other), n)
		}
		values[n] = strings.ToLower(m[1])
	}
	return values
}

// The name of a drop reason is its C name in lower case: the way from a metric to the line that drops.
func TestDropReasonNames(t *testing.T) {
	reasons := enumOf(t, "../../bpf/types.h", "drop_reason", "DROP_")
	const all = int(bpfDropReasonDROP_MAX)
	if len(DropReasons()) != all-1 || len(reasons) != all+1 || reasons[all] != "max" {
		t.Fatalf("%d names in Go, and in C %v", len(DropReasons()), reasons)
	}
	meanings := map[string]bool{}
	for i := range all {
		r := DropReason(i)
		if r.String() != reasons[i] {
			t.Errorf("reason %d is %q in Go and %q in C", i, r, reasons[i])
		}
		if m := r.Meaning(); len(m) < 10 || meanings[m] {
			t.Errorf("reason %s has no meaning of its own: %q", r, m)
		}
		meanings[r.Meaning()] = true
	}
	if newer := DropReason(all); newer.String() != "reason_"+strconv.Itoa(all) || newer.Meaning() == "" {
		t.Errorf("a reason of a newer datapath is %q: %q", newer, newer.Meaning())
	}
}

func TestProgramNames(t *testing.T) {
	programs := enumOf(t, "../../bpf/types.h", "program", "PROGRAM_")
	if len(programs) != len(programNames)+1 || programs[len(programNames)] != "max" {
		t.Fatalf("%d names in Go, and in C %v", len(programNames), programs)
	}
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range programNames {
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
	for _, name := range socketProgramNames {
		if spec.Programs[name] == nil || len(name) > 15 {
			t.Errorf("%s is not a program at sockets", name)
		}
	}
	agents := Config{Policy: true, Flows: FlowsPolicy}.agentPrograms()
	for _, name := range agents {
		if spec.Programs[name] == nil || len(name) > 15 {
			t.Errorf("%s is not a program that the agent runs", name)
		}
	}
	if named := len(programNames) + len(socketProgramNames) + len(agents); len(spec.Programs) != named {
		t.Errorf("the object has %d programs, %d are named", len(spec.Programs), named)
	}
}

// Every map of the object is either pinned, or private to one load and of no use to the next.
func TestPinnedMaps(t *testing.T) {
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	pinned := map[string]bool{}
	for _, name := range pinnedMaps {
		pinned[name] = true
	}
	for name := range spec.Maps {
		if !pinned[name] && !strings.HasPrefix(name, ".rodata") && !slices.Contains(privateMaps, name) {
			t.Errorf("map %s would be lost with the agent", name)
		}
		delete(pinned, name)
	}
	if len(pinned) > 0 {
		t.Errorf("the object has no maps %v", pinned)
	}
}
