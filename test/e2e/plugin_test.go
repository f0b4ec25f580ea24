package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

const (
	// networkName is the CNI network of all tests.
	networkName = netlab.NetworkName
	// podInterface is the device in a pod.
	podInterface = plugin.PodInterface
	// referencePlugins is Debian's directory of standard plugins.
	referencePlugins = netlab.ReferencePlugins
)

// network is a CNI configuration list on a node, as a runtime reads it from /etc/cni/net.d.
type network struct{ plugin.Network }

// network is the installed configuration, for the plugin of build p, with other plugins chained.
func (c *cluster) network(n *node, p programs, cniVersion string, chained ...map[string]any) network {
	c.t.Helper()
	return c.networkOf(n, p, cniVersion, pluginConf(n), chained...)
}

// pluginConf is our plugin's entry of the installed configuration.
func pluginConf(n *node) map[string]any {
	return netlab.PluginConf(n.Node)
}

// networkOf is the configuration with another entry for our plugin.
func (c *cluster) networkOf(n *node, p programs, cniVersion string, own map[string]any, chained ...map[string]any) network {
	c.t.Helper()
	w, err := netlab.NewNetwork(n.Node, p, cniVersion, own, chained...)
	if err != nil {
		c.t.Fatal(err)
	}
	return network{w}
}

// standard is the network that most tests use.
func (c *cluster) standard(n *node) network {
	c.t.Helper()
	if c.plugin != nil {
		return c.network(n, *c.plugin, "1.1.0")
	}
	return c.network(n, current(c.t), "1.1.0")
}

func runtimeConf(pod *testbed.Pod) *libcni.RuntimeConf {
	return netlab.RuntimeConf(pod)
}

// newPod makes the network namespace of a pod, without ADD.
func (c *cluster) newPod(n *node, name string) *testbed.Pod {
	c.t.Helper()
	pod, err := c.lab.NewPodNetns(c.t.Context(), n.Node, name)
	if err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// add calls CNI ADD for a pod and sets its addresses.
func (w network) add(ctx context.Context, pod *testbed.Pod, conf *libcni.RuntimeConf) (*types100.Result, error) {
	return w.Add(ctx, pod, conf)
}

func (w network) del(ctx context.Context, conf *libcni.RuntimeConf) error {
	return w.Delete(ctx, conf)
}

// addPod makes a pod with a network on a node.
func (c *cluster) addPod(n *node, name string) *testbed.Pod {
	c.t.Helper()
	pod := c.newPod(n, name)
	if _, err := c.standard(n).add(c.t.Context(), pod, runtimeConf(pod)); err != nil {
		c.t.Fatalf("ADD of %s: %v", name, err)
	}
	return pod
}

// delPod calls CNI DEL for a pod and deletes its namespace.
func (c *cluster) delPod(n *node, pod *testbed.Pod) {
	c.t.Helper()
	if err := c.standard(n).del(c.t.Context(), runtimeConf(pod)); err != nil {
		c.t.Errorf("DEL of %s: %v", pod.Name, err)
	}
	if err := c.lab.DeletePod(c.t.Context(), pod); err != nil {
		c.t.Fatal(err)
	}
}

// wantCode fails the test unless err is a CNI error with this code and all of the words.
func wantCode(t *testing.T, call string, err error, code uint, words ...string) {
	t.Helper()
	var cniErr *types.Error
	if !errors.As(err, &cniErr) || cniErr.Code != code || !containsAll(cniErr.Msg, words) {
		t.Errorf("%s returns %v, want CNI error %d with %q", call, err, code, words)
	}
}
