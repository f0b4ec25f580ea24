package network

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

// Build is another build of this project, which takes part in a run as networks of their own: the same run measures two versions in
// each round. The zero value is the build that runs.
type Build struct {
	// Name stands in the place of "beeline" in the names of its networks: with "old", "old" and "old-kernel".
	Name string
	// Dir is the directory of its programs.
	Dir string
}

// ParseBuilds takes the elements of the form NAME=PATH out of a list of networks' names. PATH is the directory of the
// build's programs. An error names the element.
func ParseBuilds(list []string) (names []string, builds []Build, err error) {
	for _, element := range list {
		name, path, is := strings.Cut(element, "=")
		if !is {
			names = append(names, element)
			continue
		}
		if name == "" || path == "" || strings.HasPrefix(name, "beeline") || strings.HasPrefix(name, "node") {
			return nil, nil, fmt.Errorf("%q: want NAME=PATH, with a name for the networks of that build, such as old=../before/bin", element)
		}
		if path, err = filepath.Abs(path); err != nil {
			return nil, nil, fmt.Errorf("%q: %w", element, err)
		}
		if _, err := binariesIn(path); err != nil {
			return nil, nil, fmt.Errorf("%q: there is no %w", element, err)
		}
		builds = append(builds, Build{name, path})
	}
	return names, builds, nil
}

// rebuildable is a network of this project: each build of it has one.
type rebuildable interface {
	// ofBuild gives the same network of another build.
	ofBuild(Build) Network
}

// WithBuilds puts, after each network of this project, the same one of each build.
func WithBuilds[T Network](list []T, builds []Build) []T {
	var all []T
	for _, c := range list {
		all = append(all, c)
		ours, is := any(c).(rebuildable)
		for _, b := range builds {
			if !is {
				break
			}
			if other, is := ours.ofBuild(b).(T); is {
				all = append(all, other)
			}
		}
	}
	return all
}

// binaries are those of this build.
func (b Build) binaries() (binaries, error) {
	if b.Dir == "" {
		return findBinaries()
	}
	return binariesIn(b.Dir)
}

// named gives the name that this build's network has which is called name in the build that runs.
func (b Build) named(name string) string {
	if b.Name == "" {
		return name
	}
	return b.Name + strings.TrimPrefix(name, "beeline")
}

// isAnother notes that a network is of another build. with is the same network's name in the build that runs.
func (b Build) isAnother(facts map[string]string, with string) {
	if b.Name != "" {
		facts[result.OtherBuildOf] = with
	}
}

// described adds to a description which build it is about.
func (b Build) described(text string) string {
	if b.Name == "" {
		return text
	}
	return text + "; of another build, " + b.Dir
}
