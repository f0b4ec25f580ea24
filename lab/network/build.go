package network

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Build is another build of this project, which takes part in a run as networks of their own: the same run measures two
// versions in each round. The zero value is the build that runs.
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
		if err := checkPrograms(path); err != nil {
			return nil, nil, fmt.Errorf("%q: there is no %w", element, err)
		}
		builds = append(builds, Build{name, path})
	}
	return names, builds, nil
}

// WithBuilds adds, after each network of this project, the same one of each build.
func WithBuilds(list []Network, builds []Build) []Network {
	var all []Network
	for _, n := range list {
		all = append(all, n)
		if ours, ok := n.(Beeline); ok {
			for _, b := range builds {
				ours.Build = b
				all = append(all, ours)
			}
		}
	}
	return all
}

// The programs of this project that a node needs.
const (
	agentProgram  = "beeline-agent"
	pluginProgram = "beeline-cni"
)

// programs is the directory of this build's programs. For the build that runs it is $BEELINE_BIN, or where the running
// program is.
func (b Build) programs() (dir string, err error) {
	if b.Dir != "" {
		return b.Dir, checkPrograms(b.Dir)
	}
	if dir = os.Getenv("BEELINE_BIN"); dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find own program: %w", err)
		}
		dir = filepath.Dir(self)
	}
	if err := checkPrograms(dir); err != nil {
		return "", fmt.Errorf("%w (make build makes it; BEELINE_BIN may name another directory)", err)
	}
	return dir, nil
}

// checkPrograms looks for the programs in a directory. An error begins with the path of what is missing.
func checkPrograms(dir string) error {
	for _, name := range []string{agentProgram, pluginProgram} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// named returns the name that this build's network has which is called name in the build that runs.
func (b Build) named(name string) string {
	if b.Name == "" {
		return name
	}
	return b.Name + strings.TrimPrefix(name, "beeline")
}

// described adds to a description which build it is about.
func (b Build) described(text string) string {
	if b.Name == "" {
		return text
	}
	return text + "; of another build, " + b.Dir
}

// Original is the name that a network has in the build that runs.
func Original(n Network) string {
	if b, ok := n.(Beeline); ok {
		return b.name
	}
	return n.Name()
}
