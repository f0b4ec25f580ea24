package netlab

import (
	"github.com/containernetworking/cni/libcni"

	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
)

const (
	// NetworkName is the CNI network of all tests.
	NetworkName = "pods"
	// ReferencePlugins is Debian's directory of standard plugins.
	ReferencePlugins = "/usr/lib/cni"
)

// PluginConf is our plugin's entry of the installed configuration.
func PluginConf(n *testbed.Node) map[string]any {
	return map[string]any{
		"type": "beeline-cni", "agentSocket": Socket(n), "capabilities": map[string]bool{"portMappings": true, "bandwidth": true},
	}
}

// NewNetwork is a configuration on a node with this entry for our plugin of build p, and other plugins chained.
func NewNetwork(n *testbed.Node, p Programs, cniVersion string, own map[string]any, chained ...map[string]any) (plugin.Network, error) {
	plugins := append([]map[string]any{own}, chained...)
	return plugin.NewNetwork(n, []string{p.Dir, ReferencePlugins}, cniVersion, NetworkName, plugins...)
}

// RuntimeConf is the runtime configuration of a pod in the namespace default.
func RuntimeConf(pod *testbed.Pod) *libcni.RuntimeConf {
	return plugin.RuntimeConf(pod, "default", pod.Name)
}
