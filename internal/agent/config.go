package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	agentflow "github.com/beeline-cni/beeline/internal/agent/flow"
	"github.com/beeline-cni/beeline/internal/agent/httpserve"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster/apiserver"
)

// Routing says who forwards packets between pods.
type Routing string

// The ways of routing.
const (
	// RoutingEBPF redirects packets between pods and the uplink, past the host's stack.
	RoutingEBPF Routing = "ebpf"
	// RoutingKernel leaves forwarding to the host's stack, with its firewall and its routing rules.
	RoutingKernel Routing = "kernel"
)

// Tunnel says which nodes are reached through VXLAN.
type Tunnel string

// The ways of tunnels.
const (
	// TunnelAuto is for the nodes that are not on the uplink's link.
	TunnelAuto Tunnel = "auto"
	// TunnelNone is for no node: the network between them routes the pod ranges.
	TunnelNone Tunnel = "none"
	// TunnelVXLAN is for all nodes.
	TunnelVXLAN Tunnel = "vxlan"
)

// These are the configurations of the subjects, embedded under names of their own.
type (
	PolicyConfig  = agentpolicy.Config
	ServiceConfig = lb.Config
	FlowConfig    = agentflow.Config
)

// Config is everything that one can tell the agent.
type Config struct {
	// NodeName is the metadata.name of this node's Node object.
	NodeName string
	// Manifests is a directory of Kubernetes objects; empty means an API server.
	Manifests string
	// Kubeconfig says where the API server is and who asks it; empty means the service account of the agent's pod.
	Kubeconfig string
	// APIServer is the URL of the API server, or several with commas, for the service account of the agent's pod: an agent that translates the
	// address of the API server's Service cannot depend on it. Empty is what the pod was told.
	APIServer string
	// Socket is the path of the unix socket for the plugin and the command line.
	Socket string
	// StateDir keeps the endpoint files. It may be lost at a reboot but not before.
	StateDir string
	// BPFFS is a directory on a BPF file system that the agent owns.
	BPFFS string
	// Uplink names the devices to the world, with commas between them; the first one is also that towards other nodes. "auto" is the
	// device that holds the node's address and those of default routes.
	Uplink string
	// MTU of pods in bytes; 0 follows the uplink.
	MTU int
	// Routing between pods.
	Routing Routing
	// RoutesMax is how many prefixes of nodes the datapath has room for; 0 goes by the number of nodes when the agent starts.
	RoutesMax int
	// ServiceConfig is about Services.
	ServiceConfig
	// PolicyConfig is about NetworkPolicies.
	PolicyConfig
	// FlowConfig is about flows.
	FlowConfig
	// Tunnel says which nodes are reached through VXLAN.
	Tunnel Tunnel
	// TunnelPort is the UDP port of VXLAN, the same on all nodes.
	TunnelPort int
	// NodeCIDRs are the networks that addresses of nodes are in; none: see cluster.Vetter.
	NodeCIDRs value.Prefixes
	// Masquerade gives what pods send to the world the node's address.
	Masquerade bool
	// NonMasquerade are networks outside the cluster that see the addresses of pods all the same.
	NonMasquerade value.Prefixes
	// CNIConfDir and CNIBinDir are where the container runtime looks for networks and plugins; what belongs there is
	// installed when the node is ready. Empty installs nothing.
	CNIConfDir, CNIBinDir string
	// CommandDir is where this program is put for people at the node; empty puts it nowhere.
	CommandDir string
	// CNIPluginFrom is the directory that programs are installed from; empty is that of this program.
	CNIPluginFrom string
	// MemoryLimited says that the Go runtime has a memory limit already (GOMEMLIMIT), which the agent leaves as it is.
	MemoryLimited bool
	// MetricsAddress is where /metrics, /healthz and /readyz are served; empty is nowhere.
	MetricsAddress string
}

// Defaults gives the configuration that is in force where nothing else is said.
func Defaults() Config {
	name, err := os.Hostname()
	if err != nil {
		name = "" // Validate asks for it
	}
	return Config{
		NodeName:       name,
		Socket:         agentapi.DefaultSocket,
		StateDir:       "/run/beeline",
		BPFFS:          "/sys/fs/bpf/beeline",
		Uplink:         "auto",
		Routing:        RoutingEBPF,
		ServiceConfig:  lb.Defaults(),
		PolicyConfig:   agentpolicy.Defaults(),
		FlowConfig:     agentflow.Defaults(),
		Tunnel:         TunnelAuto,
		TunnelPort:     4789, // IANA's for VXLAN
		Masquerade:     true,
		MetricsAddress: "127.0.0.1:9965",
	}
}

// Bounds of an MTU: IPv6 needs 1280 bytes on every link (RFC 8200, 5), and the kernel's devices take 65535.
const (
	minMTU = 1280
	maxMTU = 65535
)

// Validate reports every impossible value, each with the name of its flag.
func (c Config) Validate() error {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("--node-name: must not be empty"))
	}
	if c.Manifests != "" && c.Kubeconfig != "" {
		errs = append(errs, errors.New("--manifests and --kubeconfig: the cluster's state comes from one of them"))
	}
	if c.APIServer != "" {
		if c.Manifests != "" || c.Kubeconfig != "" {
			errs = append(errs, errors.New("--api-server: says where the API server is for the service account of the agent's pod, and not with --manifests or --kubeconfig"))
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
	if names := value.List(c.Uplink); len(names) == 0 || len(names) > 1 && slices.Contains(names, "auto") {
		errs = append(errs, fmt.Errorf(`--uplink: %q is neither "auto" nor the names of devices`, c.Uplink))
	}
	if c.MTU != 0 && (c.MTU < minMTU || c.MTU > maxMTU) {
		errs = append(errs, fmt.Errorf("--mtu: %d is not 0 (follow the uplink) or between %d and %d", c.MTU, minMTU, maxMTU))
	}
	if c.Routing != RoutingEBPF && c.Routing != RoutingKernel {
		errs = append(errs, fmt.Errorf("--routing: %q is neither %q nor %q", c.Routing, RoutingEBPF, RoutingKernel))
	}
	errs = append(errs, c.ServiceConfig.Validate(), c.PolicyConfig.Validate(), c.FlowConfig.Validate())
	if !slices.Contains([]Tunnel{TunnelAuto, TunnelNone, TunnelVXLAN}, c.Tunnel) {
		errs = append(errs, fmt.Errorf("--tunnel: %q is none of %q, %q and %q", c.Tunnel, TunnelAuto, TunnelNone, TunnelVXLAN))
	}
	if c.TunnelPort < 1 || c.TunnelPort > 65535 {
		errs = append(errs, fmt.Errorf("--tunnel-port: %d is not between 1 and 65535", c.TunnelPort))
	}
	if c.RoutesMax < 0 || c.RoutesMax > value.MaxTableSize {
		errs = append(errs, fmt.Errorf("--routes-max: %d is not 0 (go by the number of nodes) or between 1 and %d", c.RoutesMax, value.MaxTableSize))
	}
	if c.MetricsAddress != "" {
		if _, _, err := net.SplitHostPort(c.MetricsAddress); err != nil {
			errs = append(errs, fmt.Errorf("--metrics-address: %w", err))
		} else if c.Manifests != "" && httpserve.IsBeyondNode(c.MetricsAddress) {
			errs = append(errs, fmt.Errorf("--metrics-address: others than the node can read at %s, and without an API server nobody says who may; use 127.0.0.1", c.MetricsAddress))
		}
	}
	return errors.Join(errs...)
}
