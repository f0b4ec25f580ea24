package docs

import (
	"path"
	"testing"
)

// filesMax is how many Go files a package has at most, tests among them: more is several subjects.
const filesMax = 40

// large are packages above it, with their bound until they are cut.
var large = map[string]int{"test/e2e": 57}

// TestSmallPackages bounds the files of each package.
func TestSmallPackages(t *testing.T) {
	files := map[string]int{}
	for _, name := range tracked(t) {
		if path.Ext(name) == ".go" {
			files[path.Dir(name)]++
		}
	}
	for dir, n := range files {
		if n > max(filesMax, large[dir]) {
			t.Errorf("%s has %d files, at most %d", dir, n, max(filesMax, large[dir]))
		}
	}
	for dir := range large {
		if files[dir] <= filesMax {
			t.Errorf("%s has %d files: take it off the list", dir, files[dir])
		}
	}
}
