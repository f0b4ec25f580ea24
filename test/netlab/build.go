package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// commands are the import paths of the two programs.
const commands = "github.com/beeline-cni/beeline/cmd/"

// Programs are one build of this project.
type Programs struct {
	// Beeline is the path of the program; beeline-cni is beside it.
	Beeline string
}

// PluginDir is the directory of the CNI plugin.
func (p Programs) PluginDir() string { return filepath.Dir(p.Beeline) }

// Build builds both programs with this version string, in a directory of that name below dir. Flags are more of those of go build.
func Build(dir, version string, flags ...string) (Programs, error) {
	return BuildSources("", dir, version, flags...)
}

// BuildSources builds those of a module in another directory. Empty is the module of the current one.
func BuildSources(sources, dir, version string, flags ...string) (Programs, error) {
	dir = filepath.Join(dir, version)
	args := slices.Concat([]string{"build", "-buildvcs=false", "-ldflags", "-X main.version=" + version}, flags, []string{"-o", dir + "/", commands + "beeline", commands + "beeline-cni"})
	cmd := exec.Command("go", args...)
	cmd.Dir = sources
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("build %s: %w\n%s", version, err, said)
	}
	return Programs{filepath.Join(dir, "beeline")}, nil
}
