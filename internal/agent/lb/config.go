// Package lb brings Services and host ports into the datapath: from snapshots of the cluster, independently of
// reconciliations.
package lb

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/service"
)

// Mode says what translates addresses of Services.
type Mode string

// The modes.
const (
	// ModeAuto is ModeEBPF.
	ModeAuto Mode = "auto"
	// ModeEBPF is the datapath: when a socket connects, or else packet by packet. Nothing else is needed.
	ModeEBPF Mode = "ebpf"
	// ModeNone is nothing on this node.
	ModeNone Mode = "none"
	// ModeKubeProxy is kube-proxy, or rules like its own. Packets of connections that the kernel stack translates
	// pass through it in both directions, also with eBPF routing.
	ModeKubeProxy Mode = "kube-proxy"
)

// NodePortMode says how an external connection gets to a backend on another node.
type NodePortMode string

// The modes of NodePorts.
const (
	// NodePortSNAT gives the connection this node's address, so that replies come back here.
	NodePortSNAT NodePortMode = "snat"
	// NodePortDSR lets the backend's node reply to the client, where the two nodes are on one link.
	NodePortDSR NodePortMode = "dsr"
)

// Sizes are the capacities of tables. Each entry of capacity costs 16 bytes; those of NATPending and Affinities are preallocated (see
// datapath.Sizes).
type Sizes struct {
	// Services counts frontends: each address of each port of a Service. Backends counts them once for each set.
	Services, Backends int
	// NAT counts both directions of connections that are translated packet by packet, NATPending those without a reply.
	NAT, NATPending int
	// Affinities counts clients of Services with session affinity.
	Affinities int
}

// Config is the configuration of Services.
type Config struct {
	// Services says what translates their addresses.
	Services Mode
	// Cgroup is a directory of the cgroup2 file system: sockets of processes below it are resolved when they connect. "auto" is where it is mounted.
	Cgroup string
	// NodePortAddresses are the networks of the node's addresses that serve NodePorts; none means the addresses of
	// the Node object.
	NodePortAddresses value.Prefixes
	// NodePortMode and NodePortAcceleration say how external connections are forwarded.
	NodePortMode         NodePortMode
	NodePortAcceleration config.Acceleration
	// ExternalIPs are the networks that externalIPs of Services may be in; none allows none.
	ExternalIPs value.Networks
	// NATPorts are the ports that NAT allocates.
	NATPorts value.PortRange
	// MaglevTableSize is the size of each table of consistent hashing, a prime; 0 follows the number of backends.
	MaglevTableSize value.TableSize
	// Sizes are those of the tables.
	Sizes Sizes
	// HealthzAddress is where external load balancers check whether this node forwards; empty means nowhere.
	HealthzAddress string
}

// Defaults is the configuration without flags.
func Defaults() Config {
	return Config{
		Services:             ModeAuto,
		Cgroup:               "auto",
		NodePortMode:         NodePortSNAT,
		NodePortAcceleration: config.AccelerationAuto,
		NATPorts:             value.PortRange{First: 40000, Last: 65535},
		Sizes:                Sizes{Services: 65536, Backends: 262144, NAT: 262144, NATPending: 65536, Affinities: 16384},
		HealthzAddress:       "0.0.0.0:10256", // kube-proxy's
	}
}

// Bounds: ports below belong to well-known services (RFC 6335, 6).
const (
	minNATPort  = 1024
	minNATPorts = 1024
)

// Validate reports every impossible value, each with the name of its flag.
func (c Config) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Cgroup != "auto" && !filepath.IsAbs(c.Cgroup) {
		fail(`--cgroup: %q is neither "auto" nor an absolute path`, c.Cgroup)
	}
	if c.NATPorts.First < minNATPort || int(c.NATPorts.Last)-int(c.NATPorts.First)+1 < minNATPorts {
		fail("--nat-ports: %s must start at %d or later and have at least %d ports", c.NATPorts, minNATPort, minNATPorts)
	}
	if s := int(c.MaglevTableSize); s != 0 && (s > value.MaxTableSize || !service.ValidMaglevSize(s)) {
		fail("--maglev-table-size: %d is not a prime of a useful size: each backend's steps would not reach every entry", s)
	}
	if c.HealthzAddress != "" {
		if _, _, err := net.SplitHostPort(c.HealthzAddress); err != nil {
			fail("--healthz-address: %w", err)
		}
	}
	return errors.Join(append(errs,
		value.OneOf("--services", c.Services, ModeAuto, ModeEBPF, ModeKubeProxy, ModeNone),
		value.OneOf("--nodeport-mode", c.NodePortMode, NodePortSNAT, NodePortDSR),
		value.OneOf("--nodeport-acceleration", c.NodePortAcceleration, config.AccelerationAuto, config.AccelerationXDP, config.AccelerationTC),
		value.Between("--services-max", c.Sizes.Services, 1, value.MaxTableSize),
		value.Between("--backends-max", c.Sizes.Backends, 1, value.MaxTableSize),
		value.Between("--nat-max", c.Sizes.NAT, 1, value.MaxTableSize),
		value.Between("--nat-pending-max", c.Sizes.NATPending, 1, value.MaxTableSize),
		value.Between("--affinities-max", c.Sizes.Affinities, 1, value.MaxTableSize))...)
}
