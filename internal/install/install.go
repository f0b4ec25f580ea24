// Package install installs the CNI plugin and the network's configuration where the container runtime looks for them,
// keeps both there, and removes them on uninstall.
package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
)

// The names of the installed files. They are ours alone, so that no file of another network is replaced.
const (
	// Plugin is the CNI plugin.
	Plugin = "beeline-cni"
	// PortMap is the reference plugin portmap under our name.
	PortMap = "beeline-portmap"
	// Command is the command-line tool for administrators of the node.
	Command = "beeline"
	// Agent is the agent; administrators of the node uninstall the network with it.
	Agent = "beeline-agent"
	// Conflist is the network's configuration. The runtime uses the file whose name sorts first.
	Conflist = "10-beeline.conflist"
)

// Config says what to install. Files for an empty directory are not installed.
type Config struct {
	// ConfDir is where the container runtime looks for networks, in this mount namespace.
	ConfDir string
	// BinDir is where the container runtime looks for plugins, in this mount namespace.
	BinDir string
	// CommandDir is where to install Command and Agent.
	CommandDir string
	// From is the directory to copy the programs from.
	From string
	// Socket is the agent's socket, as the plugin sees it.
	Socket string
	// PortMap makes portmap translate host ports (hostPort), in the kernel stack. The plugin is installed in any
	// case: existing pods may need it for DEL.
	PortMap bool
}

// Installer installs files and remembers their verified state. It is not safe for concurrent use.
type Installer struct {
	config Config
	log    *slog.Logger
	// artifacts in the order of writing: a configuration never names a missing plugin.
	artifacts []artifact
	// verified has the stamp of each file when its content was last verified.
	verified map[string]stamp
}

// artifact is one file to install.
type artifact struct {
	to   string
	mode os.FileMode
	open func() (io.ReadCloser, error)
}

// New prepares an installer.
func New(config Config, log *slog.Logger) (*Installer, error) {
	i := &Installer{config: config, log: log, verified: map[string]stamp{}}
	program := func(dir, name string) {
		if dir != "" {
			from := filepath.Join(config.From, name)
			i.artifacts = append(i.artifacts, artifact{filepath.Join(dir, name), 0o755, func() (io.ReadCloser, error) { return os.Open(from) }})
		}
	}
	program(config.CommandDir, Command)
	program(config.CommandDir, Agent)
	program(config.BinDir, Plugin)
	program(config.BinDir, PortMap)
	if config.ConfDir != "" {
		conflist, err := renderConflist(config.Socket, config.PortMap)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", Conflist, err)
		}
		// Readable by root only, as in the CIS Kubernetes Benchmark (1.1.9).
		i.artifacts = append(i.artifacts, artifact{filepath.Join(config.ConfDir, Conflist), 0o600, func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(conflist)), nil
		}})
	}
	return i, nil
}

// Sync installs what is missing or differs. Call it when the node can carry pods: the runtime starts pods as soon as
// the configuration exists. problems are what the node cannot solve.
func (i *Installer) Sync() (problems []string, err error) {
	for _, a := range i.artifacts {
		if err := i.sync(a); err != nil {
			// Later artifacts need the earlier ones.
			return nil, fmt.Errorf("install %s: %w", a.to, err)
		}
	}
	if i.config.ConfDir == "" {
		return nil, nil
	}
	return before(i.config.ConfDir)
}

func (i *Installer) sync(a artifact) error {
	now, err := stampOf(a.to)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case now == i.verified[a.to]:
		return nil
	default:
		same, err := a.inPlace(now)
		if err != nil {
			return err
		}
		if same {
			i.verified[a.to] = now
			return nil
		}
	}
	if err := a.write(); err != nil {
		return err
	}
	i.log.Info("installed", "file", a.to)
	i.verified[a.to], err = stampOf(a.to)
	return err
}
