package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Programs is one build of this project.
type Programs struct {
	// Dir is the directory that holds them.
	Dir string
}

// Agent is the path of the agent.
func (p Programs) Agent() string { return filepath.Join(p.Dir, "beeline-agent") }

// Command is the path of the command line.
func (p Programs) Command() string { return filepath.Join(p.Dir, "beeline") }

// Build builds the programs with this version string, in a directory of that name below dir, from the module in the
// directory sources; empty is the module of the current directory. Flags are more flags of go build.
func Build(sources, dir, version string, flags ...string) (Programs, error) {
	p := Programs{filepath.Join(dir, version)}
	args := slices.Concat([]string{"build", "-buildvcs=false", "-ldflags", "-X main.version=" + version}, flags, []string{"-o", p.Dir + "/"})
	for _, name := range []string{"beeline-agent", "beeline-cni", "beeline"} {
		args = append(args, "github.com/beeline-cni/beeline/cmd/"+name)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = sources
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("build %s: %w\n%s", version, err, output)
	}
	return p, nil
}
