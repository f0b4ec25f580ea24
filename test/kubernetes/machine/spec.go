// Package machine runs a machine of the cluster: namespaces and cgroups whose process 1, boot.sh, starts the program boot,
// which keeps the machine's services running. Powering it off kills everything in its cgroup.
package machine

import (
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// Spec describes a machine.
type Spec struct {
	// Name is the host name, and the name of the network namespace, the cgroup and the disk.
	Name string `json:"name"`
	// Binaries are directories whose programs appear in the machine's plan.BinDir.
	Binaries []string `json:"binaries"`
	// Services start at the same time, except for Service.After.
	Services []Service `json:"services"`
}

// Service is a program that the machine keeps running.
type Service struct {
	// Name is also the name of its log.
	Name string `json:"name"`
	// Args are the program, found in PATH, and its arguments.
	Args []string `json:"args"`
	// After lists what the service waits for: URLs that return 200, and absolute paths that exist.
	After []string `json:"after,omitempty"`
}

func specPath(name string) string { return filepath.Join(plan.Dir(name), "machine.json") }

// Write writes the Spec for the machine's process 1.
func (s Spec) Write() error {
	if err := os.MkdirAll(plan.Dir(s.Name), 0o755); err != nil {
		return err
	}
	return file.WriteJSON(specPath(s.Name), s)
}

func readSpec(name string) (s Spec, err error) {
	err = file.ReadJSON(specPath(name), &s)
	return s, err
}
