package agent

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/mode"
	"github.com/beeline-cni/beeline/internal/agent/problem"
	"github.com/beeline-cni/beeline/internal/install"
)

// installation is the configuration of the installer.
func (c Config) installation(w mode.Modes) (install.Config, error) {
	from := c.CNIPluginFrom
	if from == "" {
		program, err := os.Executable()
		if err != nil {
			return install.Config{}, fmt.Errorf("find own program: %w", err)
		}
		from = filepath.Dir(program)
	}
	return install.Config{ConfDir: c.CNIConfDir, BinDir: c.CNIBinDir, CommandDir: c.CommandDir, From: from, Socket: c.Socket, PortMap: w.Services != lb.ModeEBPF}, nil
}

// install installs the plugin and its configuration. A node where that fails is not ready. Its existing pods are not
// affected, so it is not a.failure.
func (a *Agent) install() {
	problems, err := a.installer.Sync()
	a.notInstalled = err
	for _, p := range problems {
		a.current.Problem("%s", p)
	}
}

// unready is why the node cannot get pods; nil when it can.
func (a *Agent) unready() error {
	switch {
	case a.failure != nil:
		return problem.OneLine{Err: a.failure}
	case a.notInstalled != nil:
		return problem.OneLine{Err: a.notInstalled}
	}
	return nil
}

// readiness says whether pods can be added. Probes read it without the agent's lock.
type readiness struct{ err error }

// updateReadiness publishes it. The lock is held.
func (a *Agent) updateReadiness() { a.readiness.Store(&readiness{a.unready()}) }
