package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// testsOf reads the names of a package's tests from its sources.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
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
			names = append(names, string(found[1]))
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
	}
	check("contenderTest", map[string][]string{contenderDir: {contenderTest}})
}

// One kernel runs the one test of contenders, and no other.
func TestContenderHasAMachine(t *testing.T) {
	machines := 0
	for _, k := range kernels {
		if k.runs(contenderDir, contenderTest) {
			machines++
		}
		if k.runs(contenderDir, "TestPodsReachPods") {
			t.Errorf("Linux %s runs another test of contenders", k.version)
		}
	}
	if machines != 1 {
		t.Errorf("%d kernels run it", machines)
	}
}

// Whatever is not left out by name runs on the oldest kernel; what is chosen for a newer one runs there, too.
func TestEveryTestHasAMachine(t *testing.T) {
	oldest := kernels[0]
	if oldest.only != nil || oldest.skip != "" {
		t.Error("the oldest kernel does not run all tests")
	}
	const dir = "internal/datapath"
	for _, test := range append(testsOf(t, dir), "TestThatIsNewHere") {
		if oldest.runs(dir, test) == named(leftOut[dir], test) {
			t.Errorf("%s: runs on the oldest kernel is %t", test, oldest.runs(dir, test))
		}
		for _, k := range kernels[1:] {
			if k.runs(dir, test) && !oldest.runs(dir, test) {
				t.Errorf("%s runs on Linux %s and not on the oldest kernel", test, k.version)
			}
		}
	}
	for _, k := range kernels {
		if !k.runs("internal/device", "TestThatIsNewHere") {
			t.Errorf("a new test of internal/device does not run on Linux %s", k.version)
		}
	}
}

func TestDeal(t *testing.T) {
	parts := deal([]string{"A", "B", "C", "D", "E"}, 2)
	if want := [][]string{{"A", "C", "E"}, {"B", "D"}}; !slices.EqualFunc(parts, want, slices.Equal) {
		t.Errorf("parts are %v, want %v", parts, want)
	}
	if parts := deal([]string{"A"}, 3); len(parts) != 3 || len(parts[1])+len(parts[2]) != 0 {
		t.Errorf("one test for three machines: %v", parts)
	}
}
