// Package machine runs one machine of the cluster: a set of namespaces and cgroups whose first process starts
// the machine's services, keeps them running and collects what they leave. It is ended as a machine loses its
// power: everything in its cgroup is killed.
package machine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// Spec is what a machine is made of.
type Spec struct {
	// Name is the host name; it names the network namespace, the cgroup and the disk too.
	Name string `json:"name"`
	// Binaries are directories whose programs the machine finds in plan.BinDir.
	Binaries []string `json:"binaries"`
	// Hosts is the content of /etc/hosts.
	Hosts string `json:"hosts"`
	// Services are started at the same time; Service.After makes an order.
	Services []Service `json:"services"`
}

// Service is a program that the machine keeps running.
type Service struct {
	// Name is that of the log too.
	Name string `json:"name"`
	// Args are the program, found in PATH, and its arguments.
	Args []string `json:"args"`
	// After lists what the service waits for: URLs that answer 200, and absolute paths that exist.
	After []string `json:"after,omitempty"`
}

func specPath(name string) string { return filepath.Join(plan.Dir(name), "machine.json") }

// Write records the machine where its first process will read it.
func (s Spec) Write() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(plan.Dir(s.Name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(specPath(s.Name), append(data, '\n'), 0o644)
}

func readSpec(name string) (Spec, error) {
	var s Spec
	data, err := os.ReadFile(specPath(name))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read %s: %w", specPath(name), err)
	}
	return s, nil
}
