package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// BeelineServices is Beeline with Services of an API server: translated when a socket connects, as it is by default, or
// packet by packet.
type BeelineServices struct {
	Beeline
	// AtTC keeps the programs at sockets away from all processes, as if each ran in a virtual machine.
	AtTC bool
}

// Name is "beeline-socket" or "beeline-tc".
func (c BeelineServices) Name() string {
	if c.AtTC {
		return c.Build.named("beeline-tc")
	}
	return c.Build.named("beeline-socket")
}

func (c BeelineServices) ofBuild(b Build) Network {
	c.Build = b
	return c
}

// Facts add what the first node's agent says of itself.
func (c BeelineServices) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	return c.facts(ctx, lab, c.ofBuild(Build{}).Name())
}

// Description is for the report.
func (c BeelineServices) Description() string {
	if c.AtTC {
		return c.Build.described("Beeline with --services=ebpf, but out of reach of the pods' sockets: addresses of Services are translated packet by packet, at tc")
	}
	return c.Build.described("Beeline with --services=ebpf, as it is by default: addresses of Services are translated when a socket connects")
}

// WithKubeconfig names the file that the agents find the API server by.
func (c BeelineServices) WithKubeconfig(kubeconfig string) Proxy {
	c.kubeconfig = kubeconfig
	return c
}

// Up starts an agent on every node.
func (c BeelineServices) Up(ctx context.Context, lab *testbed.Lab) error {
	c.Routing = "ebpf"
	c.services = "ebpf"
	if c.AtTC {
		c.cgroup = nobodysCgroup
		for _, node := range lab.Nodes() {
			if err := os.MkdirAll(nobodysCgroup(node), 0o755); err != nil {
				return fmt.Errorf("make cgroup on %s: %w", node.Name, err)
			}
		}
	}
	return c.Beeline.Up(ctx, lab)
}

// nobodysCgroup has no processes.
func nobodysCgroup(node *testbed.Node) string { return filepath.Join(node.Cgroup, "nobody") }

// StartProxy has nothing to do: the agents do it.
func (BeelineServices) StartProxy(context.Context, *testbed.Lab) error { return nil }

// ProxyPID is the agent's.
func (c BeelineServices) ProxyPID(node *testbed.Node) int { return c.AgentPID(node) }
