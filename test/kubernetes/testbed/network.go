package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/test/kubernetes/config"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/program"
)

// installNetwork installs the network on the nodes. ranges are the pod CIDRs by node.
func (b *Testbed) installNetwork(ctx context.Context, ranges map[string][]netip.Prefix) error {
	for _, n := range b.Cluster.Nodes {
		if err := installPlugins(n.Name, b.Cluster.Options.Network); err != nil {
			return err
		}
		if err := apply(ctx, b.Cluster.PodRoutes(n, ranges[n.Name])...); err != nil {
			return err
		}
	}
	switch b.Cluster.Options.Network {
	case plan.NetworkBridge:
		for _, n := range b.Cluster.Nodes {
			if err := b.writeOnNode(ctx, n.Name, "/etc/cni/net.d/10-bridge.conflist", config.BridgeNetwork(ranges[n.Name])); err != nil {
				return err
			}
		}
	case plan.NetworkBeeline:
		return b.installBeeline(ctx)
	}
	return nil
}

// plugins are the reference plugins of a node with each network. The container runtime itself calls loopback.
var plugins = map[string][]string{
	plan.NetworkBeeline: {"loopback"},
	plan.NetworkBridge:  {"loopback", "bridge", "host-local", "portmap"},
	plan.NetworkNone:    {"loopback"},
}

func installPlugins(node, network string) error {
	dir := filepath.Join(plan.Disk(node), "opt/cni/bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range plugins[network] {
		if err := file.Copy(filepath.Join(dir, name), filepath.Join(pluginDir, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// writeOnNode writes a file from inside the node: the lower layer of its /etc, an overlay, must not change.
func (b *Testbed) writeOnNode(ctx context.Context, node, path string, content []byte) error {
	cmd, err := b.NodeCommand(ctx, node, "sh", "-c", `mkdir -p "${1%/*}" && cat >"$1.next" && mv "$1.next" "$1"`, "sh", path)
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(string(content))
	_, err = program.Output(cmd)
	return err
}

// installBeeline loads the image on the nodes and applies the manifest, as users do.
func (b *Testbed) installBeeline(ctx context.Context) error {
	if err := b.Load(ctx, beelineArchive); err != nil {
		return err
	}
	manifest, err := os.ReadFile(beelineManifest)
	if err != nil {
		return err
	}
	if manifest, err = fitManifest(b.Cluster, manifest); err != nil {
		return fmt.Errorf("fit %s to the cluster: %w", beelineManifest, err)
	}
	if err := os.WriteFile(plan.BeelineManifest, manifest, 0o644); err != nil {
		return err
	}
	if _, err := b.Kubectl(ctx, "apply", "-f", plan.BeelineManifest); err != nil {
		return err
	}
	if err := b.CreatePools(ctx); err != nil {
		return err
	}
	return b.awaitAll(ctx, "daemonsets", "{.status.desiredNumberScheduled}", "{.status.numberReady}")
}

// CreatePools creates the cluster's IPPools, which a removal of Beeline deletes.
func (b *Testbed) CreatePools(ctx context.Context) error {
	if len(b.Cluster.Pools()) == 0 {
		return nil
	}
	if _, err := b.Kubectl(ctx, "wait", "--for=condition=established", "--timeout=60s", "customresourcedefinition/ippools.networking.beeline.dev"); err != nil {
		return err
	}
	return b.applyManifest(ctx, string(config.Pools(b.Cluster)))
}

// agentArgs matches the first argument of the agent in a manifest. The others match arguments that fitManifest replaces.
var (
	externalArg = regexp.MustCompile(`(?m)--external-ips=\S+`)
	agentArgs   = regexp.MustCompile(`(?m)^( *- )run\n`)
	servicesArg = regexp.MustCompile(`(?m)--services=\S+`)
)

// externalIPs are the networks of the externalIPs in tests: the smoke tests' (RFC 5737, RFC 3849), and 203.0.113.250 of
// upstream's "should be possible to connect to a service via ExternalIP when the external IP is not assigned to a node".
const externalIPs = "198.51.100.0/24,203.0.113.0/24,2001:db8::/32"

// fitManifest makes the changes that docs/install.md describes. Without kube-proxy the agent needs the API server's
// address, because the agent itself implements that Service. With kube-proxy the agent must not implement Services.
// Tests have Services with externalIPs.
func fitManifest(c plan.Cluster, manifest []byte) ([]byte, error) {
	if len(agentArgs.FindAll(manifest, -1)) != 1 || len(servicesArg.FindAll(manifest, -1)) != 1 || len(externalArg.FindAll(manifest, -1)) != 1 {
		return nil, errors.New("the manifest lacks an agent with the expected arguments")
	}
	manifest = externalArg.ReplaceAll(manifest, []byte("--external-ips="+externalIPs))
	if c.Options.Proxy == plan.ProxyNone {
		return agentArgs.ReplaceAll(manifest, []byte("${1}run\n${1}--api-server="+c.APIServer()+"\n")), nil
	}
	return servicesArg.ReplaceAll(manifest, []byte("--services=kube-proxy")), nil
}

// awaitRanges waits until each node has its pod CIDRs, and returns them by node.
func (b *Testbed) awaitRanges(ctx context.Context) (map[string][]netip.Prefix, error) {
	var ranges map[string][]netip.Prefix
	err := b.await(ctx, "the nodes and their pod CIDRs", func() (bool, error) {
		var err error
		ranges, err = b.ranges(ctx)
		return len(ranges) == len(b.Cluster.Nodes), err
	})
	return ranges, err
}

// ranges returns the pod CIDRs by node, without nodes that have none yet.
func (b *Testbed) ranges(ctx context.Context) (map[string][]netip.Prefix, error) {
	out, err := b.Kubectl(ctx, "get", "nodes", "-o", "json")
	if err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := json.Unmarshal([]byte(out), &nodes); err != nil {
		return nil, err
	}
	ranges := map[string][]netip.Prefix{}
	for _, n := range nodes.Items {
		for _, cidr := range n.Spec.PodCIDRs {
			r, err := netip.ParsePrefix(cidr)
			if err != nil {
				return nil, fmt.Errorf("pod CIDR of node %s: %w", n.Name, err)
			}
			ranges[n.Name] = append(ranges[n.Name], r)
		}
	}
	return ranges, nil
}
