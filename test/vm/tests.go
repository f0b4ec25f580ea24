package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// testBinary is the compiled tests of one package.
type testBinary struct {
	// dir is the package's directory in the repository, and so in the machine, where it is also the name.
	dir string
	// path of the binary on this machine.
	path string
	// names of the tests, in the order in which they run.
	names []string
}

// buildTests compiles the tests of the packages that have any, without cgo: the machine has no C library. Only those that match are named.
func buildTests(ctx context.Context, work string, patterns []string, match string) ([]testBinary, error) {
	for i, p := range patterns {
		patterns[i] = "./" + strings.TrimPrefix(p, "./")
	}
	listed, err := output(ctx, "", "go", append([]string{"list", "-json=ImportPath,Dir,Module,TestGoFiles,XTestGoFiles"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var tests []testBinary
	for decoder := json.NewDecoder(strings.NewReader(listed)); decoder.More(); {
		var p struct {
			ImportPath, Dir           string
			Module                    struct{ Path string }
			TestGoFiles, XTestGoFiles []string
		}
		if err := decoder.Decode(&p); err != nil {
			return nil, fmt.Errorf("read package list: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue
		}
		dir := strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
		t := testBinary{dir: dir, path: filepath.Join(work, strings.ReplaceAll(dir, "/", "_")+".test")}
		build := exec.CommandContext(ctx, "go", "test", "-c", "-o", t.path, p.ImportPath)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("compile tests of %s: %w\n%s", dir, err, out)
		}
		if dir == networkDir { // asked for a list, its tests would build all that they need here
			if wanted, err := regexp.MatchString(match, networkTest); err != nil || wanted {
				t.names = []string{networkTest}
			}
			tests = append(tests, t)
			continue
		}
		list, err := output(ctx, p.Dir, t.path, "-test.list", match)
		if err != nil {
			return nil, fmt.Errorf("list tests of %s: %w", dir, err)
		}
		t.names = slices.DeleteFunc(strings.Fields(list), func(name string) bool { return strings.HasPrefix(name, "Benchmark") })
		tests = append(tests, t)
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("no tests in %s", strings.Join(patterns, " "))
	}
	return tests, nil
}
