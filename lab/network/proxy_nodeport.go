package network

import (
	"context"
	"fmt"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// BeelineNodePort is Beeline with Services of an API server, told where it forwards connections from the world.
type BeelineNodePort struct {
	BeelineServices
	// Acceleration is the agents' --nodeport-acceleration: "tc" or "xdp".
	Acceleration string
}

// Name is "beeline-tc" or "beeline-xdp".
func (c BeelineNodePort) Name() string { return c.Build.named("beeline-" + c.Acceleration) }

func (c BeelineNodePort) ofBuild(b Build) Network {
	c.Build = b
	return c
}

// Facts add what the first node's agent says of itself.
func (c BeelineNodePort) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	return c.facts(ctx, lab, c.ofBuild(Build{}).Name())
}

// Description is for the report.
func (c BeelineNodePort) Description() string {
	return c.Build.described(fmt.Sprintf("Beeline with --services=ebpf --nodeport-acceleration=%s: connections from outside are translated by Maglev and SNAT at %[1]s", c.Acceleration))
}

// WithKubeconfig names the file that the agents find the API server by.
func (c BeelineNodePort) WithKubeconfig(kubeconfig string) Proxy {
	c.kubeconfig = kubeconfig
	return c
}

// Up starts an agent on every node.
func (c BeelineNodePort) Up(ctx context.Context, lab *testbed.Lab) error {
	c.acceleration = c.Acceleration
	return c.BeelineServices.Up(ctx, lab)
}

// NodePortProxies are the networks of the NodePort bench that make Services work, in the order in which tables show them.
func NodePortProxies() []Proxy {
	return []Proxy{
		BeelineNodePort{Acceleration: "xdp"},
		BeelineNodePort{Acceleration: "tc"},
		KubeProxy{Mode: "iptables"},
		KubeProxy{Mode: "nftables"},
		KubeProxy{Mode: "ipvs"},
	}
}
