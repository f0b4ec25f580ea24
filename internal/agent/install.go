package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/internal/install"
)

// installation is where the plugin and its configuration go.
func (c Config) installation(w ways) (install.Config, error) {
	from := c.CNIPluginFrom
	if from == "" {
		program, err := os.Executable()
		if err != nil {
			return install.Config{}, fmt.Errorf("find own program: %w", err)
		}
		from = filepath.Dir(program)
	}
	return install.Config{ConfDir: c.CNIConfDir, BinDir: c.CNIBinDir, CommandDir: c.CommandDir, From: from, Socket: c.Socket, PortMap: w.services != ServicesEBPF}, nil
}

// install puts the plugin and its configuration in place. A node that cannot is not ready, but the pods that it has are
// as well off as before, which is why this is not a.failure.
func (a *Agent) install() {
	problems, err := a.installer.Sync()
	a.notInstalled = err
	for _, p := range problems {
		a.current.problem("%s", p)
	}
}

// unready is why the node cannot be given pods; nil when it can.
func (a *Agent) unready() error {
	switch {
	case a.failure != nil:
		return oneLine{a.failure}
	case a.notInstalled != nil:
		return oneLine{a.notInstalled}
	}
	return nil
}

// oneLine is an error of several steps as users read it in conditions, Events and CNI errors.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }
