package network

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/lab/kubebuild"
	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// KubeProxy is the real kube-proxy on every node, over pods that the reference plugin ptp makes. It is built from the
// sources of Kubernetes by BuildKubeProxy.
type KubeProxy struct {
	// Mode is kube-proxy's: "iptables", "nftables" or "ipvs".
	Mode string
}

// resync is kube-proxy's period of writing everything again. Its default of 30 s would have each of many nodes at work
// during the samples of others.
const resync = "1h"

// BuildKubeProxy builds kube-proxy where the cache of built programs lacks it, which takes minutes and the Go command,
// and reports progress.
func BuildKubeProxy(ctx context.Context, print func(format string, args ...any)) error {
	cache, err := kubebuild.OpenCache()
	if err != nil {
		return err
	}
	return kubebuild.Build(ctx, cache, kubebuild.Version, []string{"kube-proxy"}, print)
}

// kubeProxyProgram is where the program is, or will be.
func kubeProxyProgram() (string, error) {
	cache, err := kubebuild.OpenCache()
	if err != nil {
		return "", err
	}
	return cache.Path(kubebuild.Version, "kube-proxy")
}

// Name is "kube-proxy-" and the mode.
func (c KubeProxy) Name() string { return "kube-proxy-" + c.Mode }

// Description is for the report.
func (c KubeProxy) Description() string {
	return fmt.Sprintf("kube-proxy %s in mode %s on every node, over veth pairs of the reference CNI plugin ptp, with static routes between nodes", kubebuild.Version, c.Mode)
}

// Unsupported says which plugin, program or part of the kernel is missing.
func (c KubeProxy) Unsupported() string {
	if missing := referenceMissing("ptp", "host-local"); missing != "" {
		return missing
	}
	switch c.Mode {
	case "ipvs":
		return cmp.Or(ipvsMissing(), lacks(dummyDevices, ipSets))
	case "nftables":
		return lacks(nftTables)
	}
	return lacks(kubeProxyRules)
}

// Up routes the pods of the nodes. Each node gets a default route besides, as nodes of clusters have: what has no route
// does not come as far as the rules for what the node itself sends.
func (KubeProxy) Up(ctx context.Context, lab *testbed.Lab) error {
	for _, node := range lab.Nodes() {
		if _, err := node.Output(ctx, "ip", "route", "add", "default", "dev", testbed.Uplink, "scope", "link"); err != nil {
			return fmt.Errorf("add default route on %s: %w", node.Name, err)
		}
	}
	return routePods(ctx, lab)
}

// StartProxy starts kube-proxy on every node.
func (c KubeProxy) StartProxy(_ context.Context, lab *testbed.Lab) error {
	program, err := kubeProxyProgram()
	if err != nil {
		return err
	}
	for _, node := range lab.Nodes() {
		if err := c.start(program, lab, node); err != nil {
			return fmt.Errorf("start kube-proxy of %s: %w", node.Name, err)
		}
	}
	return nil
}

func kubeProxyFile(node *testbed.Node, name string) string {
	return filepath.Join(node.StateDir, "kube-proxy."+name)
}

func (c KubeProxy) start(program string, lab *testbed.Lab, node *testbed.Node) error {
	text, err := yaml.Marshal(c.configuration(lab, node))
	if err != nil {
		return err
	}
	config := kubeProxyFile(node, "yaml")
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return err
	}
	cmd := exec.Command(program, "--config", config)
	cmd.Env = withoutProxies(os.Environ())
	_, err = start(node, cmd, kubeProxyFile(node, "log"), kubeProxyFile(node, "pid"))
	return err
}

// configuration is kube-proxy's defaults but for what a namespace of a larger machine needs.
func (c KubeProxy) configuration(lab *testbed.Lab, node *testbed.Node) map[string]any {
	pods := []string{testbed.PodNetworkIPv4.String()}
	if lab.IPv6 {
		pods = append(pods, testbed.PodNetworkIPv6.String())
	}
	return map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode":             c.Mode,
		"clientConnection": map[string]any{"kubeconfig": Kubeconfig(lab)},
		"clusterCIDR":      strings.Join(pods, ","), "hostnameOverride": node.Name,
		"oomScoreAdj": 0, // what it has: less needs a capability
		// The size of the conntrack table belongs to the whole machine and is read-only in other namespaces.
		"conntrack": map[string]any{"maxPerCore": 0, "min": 0},
		"iptables":  map[string]any{"syncPeriod": resync},
		"nftables":  map[string]any{"syncPeriod": resync},
		"ipvs":      map[string]any{"syncPeriod": resync},
	}
}

// withoutProxies leaves out what would send requests to the loopback elsewhere.
func withoutProxies(env []string) []string {
	return slices.DeleteFunc(env, func(setting string) bool {
		name, _, _ := strings.Cut(setting, "=")
		return slices.Contains([]string{"http_proxy", "https_proxy", "all_proxy"}, strings.ToLower(name))
	})
}

// Plugin is ptp without its masquerade: that would change connections between pods that kube-proxy has already
// translated, and the pods of a lab reach no external address.
func (KubeProxy) Plugin(lab *testbed.Lab, node *testbed.Node) (*plugin.Network, error) {
	return Forwarding.Plugin(lab, node)
}

// Facts name the versions, and what differs from kube-proxy's defaults.
func (c KubeProxy) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	facts := commonFacts(lab)
	referenceFacts(ctx, lab, facts)
	facts["kube-proxy"] = "v" + kubebuild.Version + ", mode " + c.Mode
	facts["kube-proxy settings"] = "its defaults, but syncPeriod " + resync + " and no change of the size of conntrack's table"
	facts["masquerade"] = "kube-proxy's only: none for what pods send to external addresses"
	if program := map[string]string{"iptables": "iptables", "nftables": "nft"}[c.Mode]; program != "" { // which does most of the work
		if out, err := lab.Node(0).Output(ctx, program, "--version"); err == nil {
			facts[program] = strings.TrimSpace(string(out))
		}
	}
	return facts
}

// ProxyPID is kube-proxy's.
func (KubeProxy) ProxyPID(node *testbed.Node) int {
	return runningIn(node, kubeProxyFile(node, "pid"))
}

// ipvsMissing looks for IPVS itself.
var ipvsMissing = sync.OnceValue(func() string {
	_ = exec.Command("modprobe", "ip_vs").Run() // where it is a module; the family says whether it is there
	if _, err := netlink.GenlFamilyGet("IPVS"); err != nil {
		return "not on this kernel: IPVS (CONFIG_IP_VS)"
	}
	return ""
})

// Prepare builds what these networks run and is not part of this project: kube-proxy. print reports progress.
func Prepare(ctx context.Context, list []Network, print func(format string, args ...any)) error {
	for _, n := range list {
		if _, ok := n.(KubeProxy); ok && n.Unsupported() == "" {
			return BuildKubeProxy(ctx, print)
		}
	}
	return nil
}
