package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testsOf reads the names of a package's tests from its sources.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", dir, err)
	}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range declaration.FindAllSubmatch(source, -1) {
			name := string(found[1])
			if slices.Contains(names, name) {
				t.Errorf("%s has two tests %s", dir, name)
			}
			names = append(names, name)
		}
	}
	return names
}

// A test that was renamed would leave the lists without a word.
func TestListsNameTests(t *testing.T) {
	check := func(list string, lists map[string][]string) {
		for dir, patterns := range lists {
			tests := testsOf(t, dir)
			for _, pattern := range patterns {
				if !slices.ContainsFunc(tests, func(test string) bool { return named([]string{pattern}, test) }) {
					t.Errorf("%s names %s, which %s does not have", list, pattern, dir)
				}
			}
		}
	}
	check("leftOut", leftOut)
	for _, k := range kernels {
		check("Linux "+k.version, k.only)
		check("-quick on Linux "+k.version, k.hurried().only)
	}
	measured := map[string][]string{}
	for dir, tests := range seconds {
		measured[dir] = slices.Collect(maps.Keys(tests))
	}
	check("seconds", measured)
	check("onNetkit", map[string][]string{datapathDir: onNetkit})
	check("networkTest", map[string][]string{networkDir: {networkTest}})
}

// One kernel runs the one test of networks, and no other.
func TestNetworkHasAMachine(t *testing.T) {
	machines := 0
	for _, k := range kernels {
		if k.runs(networkDir, networkTest) {
			machines++
		}
		if k.runs(networkDir, "TestPodsReachPods") {
			t.Errorf("Linux %s runs another test of networks", k.version)
		}
	}
	if machines != 1 {
		t.Errorf("%d kernels run it", machines)
	}
}

// Whatever is not left out by name runs on the oldest kernel; what is chosen for a newer one runs there, too.
func TestEveryTestHasAMachine(t *testing.T) {
	oldest := kernels[0]
	if _, chosen := oldest.only[datapathDir]; chosen || oldest.skip != "" {
		t.Error("the oldest kernel does not run all tests of the datapath")
	}
	const dir = "internal/datapath"
	for _, test := range append(testsOf(t, dir), "TestThatIsNewHere") {
		if oldest.runs(dir, test) == named(leftOut[listed(dir)], test) {
			t.Errorf("%s: runs on the oldest kernel is %t", test, oldest.runs(dir, test))
		}
		for _, k := range kernels[1:] {
			if k.runs(dir, test) && !oldest.runs(dir, test) {
				t.Errorf("%s runs on Linux %s and not on the oldest kernel", test, k.version)
			}
			if k.hurried().runs(dir, test) && !k.runs(dir, test) {
				t.Errorf("%s runs on Linux %s in a hurry only", test, k.version)
			}
		}
	}
	for _, k := range kernels {
		if !k.runs("internal/device", "TestThatIsNewHere") {
			t.Errorf("a new test of internal/device does not run on Linux %s", k.version)
		}
	}
}

// Whatever is not left out by name runs on the newest kernel with netkit devices, and -quick runs few of the tests of programs.
func TestProgramsHaveAMachine(t *testing.T) {
	newest := kernels[len(kernels)-1].perDevice("")[1]
	quick := 0
	for _, dir := range []string{endToEndDir, adversaryDir} {
		for _, test := range append(testsOf(t, dir), "TestThatIsNewHere") {
			if newest.runs(dir, test) == named(leftOut[dir], test) {
				t.Errorf("%s: runs on the newest kernel is %t", test, newest.runs(dir, test))
			}
			for _, k := range kernels {
				for _, each := range k.hurried().perDevice("") {
					if each.runs(dir, test) {
						quick++
					}
				}
			}
		}
	}
	const most = 2
	if quick == 0 || quick > most {
		t.Errorf("-quick runs %d tests of programs, want 1 to %d", quick, most)
	}
}

func TestDeal(t *testing.T) {
	const dir = "internal/datapath"
	long := seconds[dir]["TestLoad"]
	for _, c := range []struct {
		name       string
		before     load
		tests      []string
		want       [][]string
		wantedToDo load
	}{
		{"alike, in turn", load{0, 0}, []string{"A", "B", "C", "D", "E"}, [][]string{{"A", "C", "E"}, {"B", "D"}}, load{3 * usual, 2 * usual}},
		{"fewer than machines", load{0, 0, 0}, []string{"A"}, [][]string{{"A"}, nil, nil}, load{usual, 0, 0}},
		{"one takes long", load{0, 0}, []string{"A", "B", "TestLoad", "C"}, [][]string{{"TestLoad"}, {"A", "B", "C"}}, load{long, 3 * usual}},
		{"after another package", load{2 * usual, 0}, []string{"A", "B", "C"}, [][]string{{"C"}, {"A", "B"}}, load{3 * usual, 2 * usual}},
	} {
		t.Run(c.name, func(t *testing.T) {
			parts := c.before.deal(dir, c.tests)
			if !slices.EqualFunc(parts, c.want, slices.Equal) || !slices.Equal(c.before, c.wantedToDo) {
				t.Errorf("parts are %v and what is to do %v, want %v and %v", parts, c.before, c.want, c.wantedToDo)
			}
		})
	}
}
