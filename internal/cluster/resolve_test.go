package cluster

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResolve(t *testing.T) {
	a := nodeYAML("a", "192.0.2.1", "10.1.0.0/24")
	b := nodeYAML("b", "192.0.2.2", "10.2.0.0/24")
	c := nodeYAML("c", "192.0.2.3", "10.3.0.0/24")
	bTakesA := nodeYAML("b", "192.0.2.2", "10.1.0.0/16")
	aMoves := nodeYAML("a", "192.0.2.1", "10.7.0.0/24")

	type step struct {
		a, b []string // what the two files say
		want string   // active nodes and ranges
		errs []string
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"both are right", []step{{[]string{a}, []string{b}, "a 10.1.0.0/24, b 10.2.0.0/24", nil}}},
		{"same range at first sight: the later file loses", []step{
			{[]string{a}, []string{bTakesA}, "a 10.1.0.0/24",
				[]string{"b.yaml:5: Node b: pod range overlaps (10.1.0.0/16 and 10.1.0.0/24) with that of Node a (a.yaml:5)"}},
		}},
		{"the file that changes loses, wherever it sorts", []step{
			{[]string{aMoves}, []string{bTakesA}, "a 10.7.0.0/24, b 10.1.0.0/16", nil},
			{[]string{a}, []string{bTakesA}, "a 10.7.0.0/24, b 10.1.0.0/16", []string{"a.yaml:5: Node a: pod range overlaps"}},
			{[]string{a}, []string{b}, "a 10.1.0.0/24, b 10.2.0.0/24", nil},
		}},
		{"two files exchange ranges at once", []step{
			{[]string{a}, []string{b}, "a 10.1.0.0/24, b 10.2.0.0/24", nil},
			{[]string{nodeYAML("a", "192.0.2.1", "10.2.0.0/24")}, []string{nodeYAML("b", "192.0.2.2", "10.1.0.0/24")}, "a 10.2.0.0/24, b 10.1.0.0/24", nil},
		}},
		{"a broken file keeps its nodes, and its ranges stay taken", []step{
			{[]string{a}, []string{b}, "a 10.1.0.0/24, b 10.2.0.0/24", nil},
			{[]string{"kind: ["}, []string{b, c}, "a 10.1.0.0/24, b 10.2.0.0/24, c 10.3.0.0/24", []string{"a.yaml:1: "}},
			{[]string{"kind: ["}, []string{bTakesA}, "a 10.1.0.0/24, b 10.2.0.0/24, c 10.3.0.0/24", []string{"a.yaml:1: ", "b.yaml:5: "}},
			{[]string{aMoves}, []string{bTakesA}, "a 10.7.0.0/24, b 10.1.0.0/16", nil},
		}},
		{"same name", []step{{[]string{a}, []string{nodeYAML("a", "192.0.2.8", "10.8.0.0/24")}, "a 10.1.0.0/24",
			[]string{"b.yaml:3: Node a: has the same name as Node a (a.yaml:3)"}}}},
		{"same address", []step{{[]string{a}, []string{nodeYAML("b", "192.0.2.1", "10.2.0.0/24")}, "a 10.1.0.0/24",
			[]string{"b.yaml:7: Node b: address 192.0.2.1 is also that of Node a (a.yaml:7)"}}}},
		{"within a file", []step{{[]string{a, bTakesA}, []string{c}, "c 10.3.0.0/24",
			[]string{"a.yaml:5: Node a: pod range overlaps"}}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			source := &manifests{log: slog.New(slog.DiscardHandler)}
			files := []*origin{{name: "a.yaml"}, {name: "b.yaml"}}
			for i, step := range test.steps {
				source.take(files[0], []byte(strings.Join(step.a, "---\n")))
				source.take(files[1], []byte(strings.Join(step.b, "---\n")))
				objects, errs := resolve(files)
				var got []string
				for _, o := range nodesIn(objects) {
					got = append(got, o.Name+" "+o.PodCIDRs[0].String())
				}
				if diff := cmp.Diff(step.want, strings.Join(got, ", ")); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
				if len(errs) != len(step.errs) {
					t.Fatalf("step %d: got %v, want %v", i, errs, step.errs)
				}
				for j, want := range step.errs {
					if !strings.Contains(errs[j].Error(), want) {
						t.Errorf("step %d: got %v, want %s", i, errs[j], want)
					}
				}
			}
		})
	}
}
