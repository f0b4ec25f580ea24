package agent

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/service"
)

// Services says who sends traffic for a Service to its backends.
type Services string

// The ways of Services.
const (
	// ServicesAuto is ServicesEBPF.
	ServicesAuto Services = "auto"
	// ServicesEBPF says that the datapath does: when a socket connects, and else packet by packet. Nothing else is needed.
	ServicesEBPF Services = "ebpf"
	// ServicesNone says that nobody on this node translates what pods send each other.
	ServicesNone Services = "none"
	// ServicesKubeProxy says that kube-proxy does, or rules of that kind: packets of connections that the host's stack
	// translates go through it in both directions, also with eBPF routing.
	ServicesKubeProxy Services = "kube-proxy"
)

// NodePortMode says how a connection from the world gets to a backend on another node.
type NodePortMode string

// The modes.
const (
	// NodePortSNAT gives it this node's address, so that the answers come back here.
	NodePortSNAT NodePortMode = "snat"
	// NodePortDSR lets the backend's node answer the client directly, where the two nodes are on one link.
	NodePortDSR NodePortMode = "dsr"
)

// Sizes are how many entries the tables of Services have room for. Room costs memory too: 16 bytes for each entry, of Openings and
// Affinities all of it (see datapath.Sizes).
type Sizes struct {
	// Services counts frontends: each address of each port of a Service. Backends counts them once for each set.
	Services, Backends int
	// Connections counts each direction of those that are translated packet by packet; Openings those that nobody
	// has answered yet.
	Connections, Openings int
	// Affinities counts clients of Services with session affinity.
	Affinities int
}

// ServiceConfig is what one can tell the agent about Services.
type ServiceConfig struct {
	// Services says who translates the addresses of Services.
	Services Services
	// Cgroup is a directory of the cgroup2 file system: sockets of processes below it find Services. "auto" is where that is mounted.
	Cgroup string
	// NodePortAddresses are the networks on whose addresses of this node NodePorts answer; none means the addresses that the Node has.
	NodePortAddresses value.Prefixes
	// NodePortMode and NodePortAcceleration say how what comes from the world is forwarded.
	NodePortMode         NodePortMode
	NodePortAcceleration datapath.Acceleration
	// ExternalIPs are the networks of which Services may have addresses in their externalIPs; none allows none.
	ExternalIPs value.Networks
	// NATPorts are the ports that translation gives out.
	NATPorts value.PortRange
	// MaglevTableSize is the size of each table of consistent hashing, a prime; 0 goes by the number of backends.
	MaglevTableSize value.TableSize
	// Sizes are those of the tables.
	Sizes Sizes
	// HealthzAddress is where load balancers of the world ask whether this node forwards; empty is nowhere.
	HealthzAddress string
}

// ServiceDefaults are in force where nothing else is said.
func ServiceDefaults() ServiceConfig {
	return ServiceConfig{
		Services:             ServicesAuto,
		Cgroup:               "auto",
		NodePortMode:         NodePortSNAT,
		NodePortAcceleration: datapath.AccelerationAuto,
		NATPorts:             value.PortRange{First: 40000, Last: 65535},
		Sizes:                Sizes{Services: 65536, Backends: 262144, Connections: 262144, Openings: 65536, Affinities: 16384},
		HealthzAddress:       "0.0.0.0:10256", // kube-proxy's
	}
}

// Bounds: ports below belong to well-known services (RFC 6335, 6).
const (
	minNATPort  = 1024
	minNATPorts = 1024
)

func (c ServiceConfig) validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if all := []Services{ServicesAuto, ServicesEBPF, ServicesKubeProxy, ServicesNone}; !slices.Contains(all, c.Services) {
		fail("--services: %q is none of %s", c.Services, value.Quoted(all))
	}
	if c.Cgroup != "auto" && !filepath.IsAbs(c.Cgroup) {
		fail(`--cgroup: %q is neither "auto" nor an absolute path`, c.Cgroup)
	}
	if all := []NodePortMode{NodePortSNAT, NodePortDSR}; !slices.Contains(all, c.NodePortMode) {
		fail("--nodeport-mode: %q is none of %s", c.NodePortMode, value.Quoted(all))
	}
	if all := []datapath.Acceleration{datapath.AccelerationAuto, datapath.AccelerationXDP, datapath.AccelerationTC}; !slices.Contains(all, c.NodePortAcceleration) {
		fail("--nodeport-acceleration: %q is none of %s", c.NodePortAcceleration, value.Quoted(all))
	}
	if c.NATPorts.First < minNATPort || int(c.NATPorts.Last)-int(c.NATPorts.First)+1 < minNATPorts {
		fail("--nat-ports: %s has to begin at %d or later and to have at least %d ports", c.NATPorts, minNATPort, minNATPorts)
	}
	if s := int(c.MaglevTableSize); s != 0 && (s > value.MaxTableSize || !service.ValidMaglevSize(s)) {
		fail("--maglev-table-size: %d is not a prime of a useful size: each backend's steps would not reach every entry", s)
	}
	for flag, size := range map[string]int{
		"--services-max": c.Sizes.Services, "--backends-max": c.Sizes.Backends, "--nat-max": c.Sizes.Connections,
		"--nat-pending-max": c.Sizes.Openings, "--affinities-max": c.Sizes.Affinities,
	} {
		if size < 1 || size > value.MaxTableSize {
			fail("%s: %d is not between 1 and %d", flag, size, value.MaxTableSize)
		}
	}
	if c.HealthzAddress != "" {
		if _, _, err := net.SplitHostPort(c.HealthzAddress); err != nil {
			fail("--healthz-address: %w", err)
		}
	}
	return errors.Join(errs...)
}
