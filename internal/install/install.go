// Package install puts the plugin where the container runtime executes it and the network's configuration where the
// runtime looks for networks, keeps both there, and removes them when the network is removed.
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

// The names of what is installed. None belongs to another network, so that nothing of another one is replaced.
const (
	// Plugin is the CNI plugin.
	Plugin = "beeline-cni"
	// PortMap is the reference plugin portmap under a name of our own.
	PortMap = "beeline-portmap"
	// Command is the program that shows the network, for people at the node.
	Command = "beeline"
	// Agent is the agent, which people at the node uninstall the network with.
	Agent = "beeline-agent"
	// Conflist is the network's configuration. The runtime takes the file whose name sorts first.
	Conflist = "10-beeline.conflist"
)

// Config says what to install. An empty directory means that what belongs there is not installed.
type Config struct {
	// ConfDir is where the container runtime looks for networks, as this process sees it.
	ConfDir string
	// BinDir is where the container runtime looks for plugins, as this process sees it.
	BinDir string
	// CommandDir is where people at the node find Command and Agent.
	CommandDir string
	// From is the directory that the programs are copied from.
	From string
	// Socket is the agent's, as the plugin sees it.
	Socket string
	// PortMap has portmap translate ports of the node (hostPort), in the host's stack. It is put beside the plugin in any case: pods from
	// before may need it when they go.
	PortMap bool
}

// Installer installs and remembers what it found in place. It is not safe for concurrent use.
type Installer struct {
	config Config
	log    *slog.Logger
	// artifacts in the order in which they are written: a configuration never names a plugin that is not there.
	artifacts []artifact
	// verified has what each file was when its content was last found right.
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
		// Readable by root only, as the CIS Kubernetes Benchmark asks of these files (1.1.9).
		i.artifacts = append(i.artifacts, artifact{filepath.Join(config.ConfDir, Conflist), 0o600, func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(conflist)), nil
		}})
	}
	return i, nil
}

// Sync installs what is missing or differs and leaves everything else as it is. To be called when the node can
// carry pods, for the runtime gives it pods as soon as the configuration is there. The problems are those that
// the node can do nothing about.
func (i *Installer) Sync() (problems []string, err error) {
	for _, a := range i.artifacts {
		if err := i.sync(a); err != nil {
			// What comes later needs what comes before.
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
