package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/topology"
)

const (
	// networkName is the CNI network of all tests.
	networkName = "pods"
	// podInterface is the device in a pod.
	podInterface = "eth0"
	// referencePlugins is where Debian has the standard plugins.
	referencePlugins = "/usr/lib/cni"
)

// network is a CNI configuration list on one node, as a runtime reads it from /etc/cni/net.d.
type network struct {
	cni  *libcni.CNIConfig
	list *libcni.NetworkConfigList
}

// network is the configuration that users get, for the plugin of the build p, with other plugins chained.
func (c *cluster) network(n *node, p programs, cniVersion string, chained ...map[string]any) network {
	c.t.Helper()
	return c.networkOf(n, p, cniVersion, pluginConf(n), chained...)
}

// pluginConf is our plugin's entry of the configuration that users get.
func pluginConf(n *node) map[string]any {
	return map[string]any{
		"type": "beeline-cni", "agentSocket": n.socket(), "capabilities": map[string]bool{"portMappings": true, "bandwidth": true},
	}
}

// networkOf is a configuration with this entry for our plugin.
func (c *cluster) networkOf(n *node, p programs, cniVersion string, own map[string]any, chained ...map[string]any) network {
	c.t.Helper()
	plugins := []any{own}
	for _, each := range chained {
		plugins = append(plugins, each)
	}
	conf, err := json.Marshal(map[string]any{"cniVersion": cniVersion, "name": networkName, "plugins": plugins})
	if err != nil {
		c.t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		c.t.Fatal(err)
	}
	runs := &plugin.Executor{Place: n.Place()}
	dirs := []string{p.pluginDir(), referencePlugins}
	return network{libcni.NewCNIConfigWithCacheDir(dirs, filepath.Join(n.StateDir, "cni-cache"), runs), list}
}

// standard is the network that most tests use.
func (c *cluster) standard(n *node) network {
	c.t.Helper()
	return c.network(n, current(c.t), "1.1.0")
}

func runtimeConf(pod *topology.Pod) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: filepath.Base(pod.Netns),
		NetNS:       pod.Netns,
		IfName:      podInterface,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", "default"},
			{"K8S_POD_NAME", pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", filepath.Base(pod.Netns)},
		},
	}
}

// newPod makes the namespace of a pod, without a network.
func (c *cluster) newPod(n *node, name string) *topology.Pod {
	c.t.Helper()
	pod, err := c.lab.NewPodNetns(c.t.Context(), n.Node, name)
	if err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// add gives a pod its network by CNI ADD and remembers its addresses.
func (w network) add(ctx context.Context, pod *topology.Pod, conf *libcni.RuntimeConf) (*types100.Result, error) {
	reply, err := w.cni.AddNetworkList(ctx, w.list, conf)
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

func (w network) del(ctx context.Context, conf *libcni.RuntimeConf) error {
	return w.cni.DelNetworkList(ctx, w.list, conf)
}

// addPod makes a pod on a node.
func (c *cluster) addPod(n *node, name string) *topology.Pod {
	c.t.Helper()
	pod := c.newPod(n, name)
	if _, err := c.standard(n).add(c.t.Context(), pod, runtimeConf(pod)); err != nil {
		c.t.Fatalf("ADD of %s: %v", name, err)
	}
	return pod
}

// delPod takes a pod's network away by CNI DEL and then its namespace.
func (c *cluster) delPod(n *node, pod *topology.Pod) {
	c.t.Helper()
	if err := c.standard(n).del(c.t.Context(), runtimeConf(pod)); err != nil {
		c.t.Errorf("DEL of %s: %v", pod.Name, err)
	}
	if err := c.lab.DeletePod(c.t.Context(), pod); err != nil {
		c.t.Fatal(err)
	}
}

// wantCode fails the test unless err is a CNI error with this code whose message has all of the words.
func wantCode(t *testing.T, what string, err error, code uint, words ...string) {
	t.Helper()
	var told *types.Error
	if !errors.As(err, &told) || told.Code != code || !containsAll(told.Msg, words) {
		t.Errorf("%s gives %v, want CNI error %d with %q", what, err, code, words)
	}
}
