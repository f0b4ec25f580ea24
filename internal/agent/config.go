package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	agentflow "github.com/beeline-cni/beeline/internal/agent/flow"
	"github.com/beeline-cni/beeline/internal/agent/httpserve"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/mode"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agent/samenode"
	"github.com/beeline-cni/beeline/internal/agent/status"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/apiserver"
	"github.com/beeline-cni/beeline/internal/install"
)

// These are the configurations of the subjects, embedded under names of their own.
type (
	NodeConfig    = node.Config
	PolicyConfig  = agentpolicy.Config
	ServiceConfig = lb.Config
	FlowConfig    = agentflow.Config
	SocketConfig  = samenode.Config
)

// Config is the configuration of the agent.
type Config struct {
	NodeConfig
	// Manifests is a directory of Kubernetes objects; empty means an API server.
	Manifests string
	// Kubeconfig says where the API server is and how to authenticate; empty means the service account of the agent's
	// pod.
	Kubeconfig string
	// APIServer is the URL of the API server, or a comma-separated list, for the service account of the agent's pod.
	// An agent that translates the address of the API server's Service cannot depend on it. Empty means the pod's
	// environment.
	APIServer string
	// Socket is the path of the unix socket for the plugin and the command line.
	Socket string
	// StateDir holds the endpoint files. It may be lost at a reboot but not before.
	StateDir string
	// BPFFS is a directory on a BPF file system that the agent owns.
	BPFFS string
	// ServiceConfig configures Services.
	ServiceConfig
	// PolicyConfig configures NetworkPolicies.
	PolicyConfig
	// FlowConfig configures flows.
	FlowConfig
	SocketConfig
	// CNIConfDir and CNIBinDir are where the container runtime looks for networks and plugins. The agent installs
	// both when the node is ready. Empty installs nothing.
	CNIConfDir, CNIBinDir string
	// CommandDir is where to install this program for administrators; empty installs it nowhere.
	CommandDir string
	// CNIPluginFrom is the directory to install programs from; empty means that of this program.
	CNIPluginFrom string
	// MemoryLimited says that the Go runtime has a memory limit already (GOMEMLIMIT), which the agent does not
	// change.
	MemoryLimited bool
	// MetricsAddress is where to serve /metrics, /healthz and /readyz; empty means nowhere.
	MetricsAddress string
}

// source makes the source of the cluster's state, and for an API server a reporter.
func (c Config) source(version string, log *slog.Logger) (cluster.Source, status.Reporter, error) {
	if c.Manifests != "" {
		return cluster.NewManifests(c.Manifests, log), nil, nil
	}
	return apiserver.New(apiserver.Config{Kubeconfig: c.Kubeconfig, Server: c.APIServer, NodeName: c.NodeName, UserAgent: "beeline/" + version}, log)
}

// Defaults gives the default configuration.
func Defaults() Config {
	name, err := os.Hostname()
	if err != nil {
		name = "" // Validate reports the empty name
	}
	c := Config{
		NodeConfig:     node.Defaults(),
		Socket:         agentapi.DefaultSocket,
		StateDir:       "/run/beeline",
		BPFFS:          "/sys/fs/bpf/beeline",
		ServiceConfig:  lb.Defaults(),
		PolicyConfig:   agentpolicy.Defaults(),
		FlowConfig:     agentflow.Defaults(),
		SocketConfig:   samenode.Defaults(),
		MetricsAddress: "127.0.0.1:9965",
	}
	c.NodeName = name
	return c
}

// Validate reports every invalid value, each with the name of its flag.
func (c Config) Validate() error {
	var errs []error
	if c.Manifests != "" && c.Kubeconfig != "" {
		errs = append(errs, errors.New("--manifests and --kubeconfig: use only one of them"))
	}
	if c.APIServer != "" {
		if c.Manifests != "" || c.Kubeconfig != "" {
			errs = append(errs, errors.New("--api-server: it is for the service account of the agent's pod, not for --manifests or --kubeconfig"))
		}
		if _, err := apiserver.Servers(c.APIServer); err != nil {
			errs = append(errs, fmt.Errorf("--api-server: %w", err))
		}
	}
	for flag, path := range map[string]string{"--socket": c.Socket, "--state-dir": c.StateDir, "--bpffs": c.BPFFS} {
		if !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s: %q is not an absolute path", flag, path))
		}
	}
	for flag, path := range map[string]string{
		"--cni-conf-dir": c.CNIConfDir, "--cni-bin-dir": c.CNIBinDir, "--command-dir": c.CommandDir, "--cni-plugin-from": c.CNIPluginFrom,
	} {
		if path != "" && !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s: %q is not an absolute path", flag, path))
		}
	}
	if strings.Contains(c.BPFFS, ".") {
		errs = append(errs, fmt.Errorf("--bpffs: %q: names on a BPF file system must not contain a dot", c.BPFFS))
	}
	errs = append(errs, c.NodeConfig.Validate(), c.ServiceConfig.Validate(), c.PolicyConfig.Validate(), c.FlowConfig.Validate(), c.SocketConfig.Validate())
	if c.MetricsAddress != "" {
		if _, _, err := net.SplitHostPort(c.MetricsAddress); err != nil {
			errs = append(errs, fmt.Errorf("--metrics-address: %w", err))
		} else if c.Manifests != "" && httpserve.IsBeyondNode(c.MetricsAddress) {
			errs = append(errs, fmt.Errorf("--metrics-address: %s is reachable from other hosts, which only an API server can authorize; use 127.0.0.1", c.MetricsAddress))
		}
	}
	return errors.Join(errs...)
}

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
