package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// Build builds both programs with this version string, in a directory of that name below dir.
func Build(dir, version string) (Programs, error) {
	dir = filepath.Join(dir, version)
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X main.version="+version, "-o", dir+"/", commands+"beeline", commands+"beeline-cni")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("build %s: %w\n%s", version, err, said)
	}
	return Programs{filepath.Join(dir, "beeline")}, nil
}
