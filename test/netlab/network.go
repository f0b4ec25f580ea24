package netlab

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
)

const (
	// NetworkName is the CNI network of all tests.
	NetworkName = "pods"
	// PodInterface is the device in a pod.
	PodInterface = "eth0"
	// ReferencePlugins is Debian's directory of standard plugins.
	ReferencePlugins = "/usr/lib/cni"
)

// Network is a CNI configuration list on one node, as a runtime reads it from /etc/cni/net.d.
type Network struct {
	CNI  *libcni.CNIConfig
	List *libcni.NetworkConfigList
}

// PluginConf is our plugin's entry of the installed configuration.
func PluginConf(n *testbed.Node) map[string]any {
	return map[string]any{
		"type": "beeline-cni", "agentSocket": Socket(n), "capabilities": map[string]bool{"portMappings": true, "bandwidth": true},
	}
}

// NewNetwork is a configuration on a node with this entry for our plugin of build p, and other plugins chained.
func NewNetwork(n *testbed.Node, p Programs, cniVersion string, own map[string]any, chained ...map[string]any) (Network, error) {
	plugins := []any{own}
	for _, each := range chained {
		plugins = append(plugins, each)
	}
	conf, err := json.Marshal(map[string]any{"cniVersion": cniVersion, "name": NetworkName, "plugins": plugins})
	if err != nil {
		return Network{}, err
	}
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return Network{}, err
	}
	runs := &plugin.Executor{Netns: n.Netns}
	dirs := []string{p.Dir, ReferencePlugins}
	return Network{libcni.NewCNIConfigWithCacheDir(dirs, filepath.Join(n.StateDir, "cni-cache"), runs), list}, nil
}

// RuntimeConf is the runtime configuration of a pod in the namespace default.
func RuntimeConf(pod *testbed.Pod) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: filepath.Base(pod.Path),
		NetNS:       pod.Path,
		IfName:      PodInterface,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", "default"},
			{"K8S_POD_NAME", pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", filepath.Base(pod.Path)},
		},
	}
}

// Add calls CNI ADD for a pod and sets its addresses.
func (w Network) Add(ctx context.Context, pod *testbed.Pod, conf *libcni.RuntimeConf) (*types100.Result, error) {
	reply, err := w.CNI.AddNetworkList(ctx, w.List, conf)
	if err != nil {
		return nil, err
	}
	result, err := types100.NewResultFromResult(reply)
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	pod.Addresses = plugin.Addresses(result)
	return result, nil
}

// Delete calls CNI DEL for a pod.
func (w Network) Delete(ctx context.Context, conf *libcni.RuntimeConf) error {
	return w.CNI.DelNetworkList(ctx, w.List, conf)
}
