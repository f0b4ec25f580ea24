package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// podInterface is the device that plugins make in a pod.
const podInterface = "eth0"

// Plugin is a CNI configuration on one node: what a runtime reads from /etc/cni/net.d.
type Plugin struct {
	// conf is the configuration list.
	conf map[string]any
	// dirs are searched for plugins, in order.
	dirs []string
}

// add makes a pod by CNI ADD, as a runtime does: namespace first, then the plugins, DEL when they fail.
func (w *Plugin) add(ctx context.Context, lab *testbed.Lab, node *testbed.Node, name string) (_ *testbed.Pod, err error) {
	// Not a named result: what is undone below must not be what is returned.
	pod, err := lab.NewPodNetns(ctx, node, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			undo := context.WithoutCancel(ctx)
			err = errors.Join(err, w.del(undo, lab, node, pod))
		}
	}()
	cni, list, err := w.open(node)
	if err != nil {
		return nil, err
	}
	reply, err := cni.AddNetworkList(ctx, list, runtimeConf(ctx, pod))
	if err != nil {
		return nil, fmt.Errorf("CNI ADD of pod %q on %s: %w", name, node.Name, err)
	}
	result, err := types100.NewResultFromResult(reply)
	if err != nil {
		return nil, fmt.Errorf("CNI ADD of pod %q on %s: read result: %w", name, node.Name, err)
	}
	pod.Addresses = plugin.Addresses(result)
	if len(pod.Addresses) == 0 {
		return nil, fmt.Errorf("CNI ADD of pod %q on %s: the result has no addresses", name, node.Name)
	}
	if pod.MTU, err = pathMTU(lab, pod); err != nil {
		return nil, fmt.Errorf("pod %q on %s: %w", name, node.Name, err)
	}
	return pod, lab.SavePod(pod)
}

// del removes a pod by CNI DEL; its namespace goes in any case.
func (w *Plugin) del(ctx context.Context, lab *testbed.Lab, node *testbed.Node, pod *testbed.Pod) error {
	cni, list, err := w.open(node)
	if err == nil {
		err = cni.DelNetworkList(ctx, list, runtimeConf(ctx, pod))
	}
	if err != nil {
		err = fmt.Errorf("CNI DEL of pod %q on %s: %w", pod.Name, node.Name, err)
	}
	return errors.Join(err, lab.DeletePod(ctx, pod))
}

func (w *Plugin) open(node *testbed.Node) (*libcni.CNIConfig, *libcni.NetworkConfigList, error) {
	conf, err := json.Marshal(w.conf)
	if err != nil {
		return nil, nil, fmt.Errorf("encode CNI configuration: %w", err)
	}
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return nil, nil, fmt.Errorf("read CNI configuration: %w", err)
	}
	cache := filepath.Join(node.StateDir, "cni-cache")
	return libcni.NewCNIConfigWithCacheDir(w.dirs, cache, &plugin.Executor{Netns: node.Netns, Ran: observed}), list, nil
}

func runtimeConf(ctx context.Context, pod *testbed.Pod) *libcni.RuntimeConf {
	id := filepath.Base(pod.Path)
	known := policies.Pod{Namespace: policies.Default, Name: pod.Name}
	if p, ok := ctx.Value(identityKey{}).(policies.Pod); ok {
		known = p
	}
	return &libcni.RuntimeConf{
		ContainerID: id,
		NetNS:       pod.Path,
		IfName:      podInterface,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", known.Namespace},
			{"K8S_POD_NAME", known.Name},
			{"K8S_POD_UID", known.UID()},
			{"K8S_POD_INFRA_CONTAINER_ID", id},
		},
	}
}

type identityKey struct{}

// AsPod returns a context under which AddPod and DelPod tell the plugin, as a runtime does, that the pod is the one of
// that namespace and name. Without it that is the one of the namespace default with the name of the lab's pod.
func AsPod(ctx context.Context, pod policies.Pod) context.Context {
	return context.WithValue(ctx, identityKey{}, pod)
}

// pathMTU reads from the pod's routes how large a packet to a pod of another node may be.
func pathMTU(lab *testbed.Lab, pod *testbed.Pod) (int, error) {
	to := podOfAnotherNode(lab, pod.Node)
	mtu, err := routeMTU(pod.Netns, to)
	if err != nil {
		return 0, fmt.Errorf("look up route to %s: %w", to, err)
	}
	return mtu, nil
}

// podOfAnotherNode is an address that a pod there could have.
func podOfAnotherNode(lab *testbed.Lab, node string) netip.Addr {
	for _, n := range lab.Nodes() {
		if n.Name != node {
			return n.PodCIDRs[0].Addr().Next().Next()
		}
	}
	return lab.Node(0).PodCIDRs[0].Addr().Next().Next()
}

// referenceDirs is where distributions put the reference plugins: Debian's place, then the usual one.
var referenceDirs = []string{"/usr/lib/cni", "/opt/cni/bin"}

// referenceMissing says which of the plugins is not installed; empty when all are.
func referenceMissing(plugins ...string) string {
	for _, p := range plugins {
		if _, err := invoke.FindInPath(p, referenceDirs); err != nil {
			return fmt.Sprintf("not installed: CNI plugin %s in %s (Debian package containernetworking-plugins)",
				p, strings.Join(referenceDirs, " or "))
		}
	}
	return ""
}

// referenceFacts say which build of the reference plugins is used.
func referenceFacts(ctx context.Context, lab *testbed.Lab, facts map[string]string) {
	out, err := lab.Node(0).Output(ctx, "dpkg-query", "--show", "--showformat=${Version}", "containernetworking-plugins")
	if err == nil && len(out) > 0 {
		facts["plugins"] = "containernetworking-plugins " + string(out)
		return
	}
	for _, dir := range referenceDirs {
		if _, err := os.Stat(dir); err == nil {
			facts["plugins"] = "reference plugins in " + dir
			return
		}
	}
}

// confList is a configuration list of one plugin.
func confList(cniVersion, name string, only map[string]any) map[string]any {
	return map[string]any{"cniVersion": cniVersion, "name": name, "plugins": []any{only}}
}

// referenceVersion is the newest CNI version that Debian 12's reference plugins know.
const referenceVersion = "1.0.0"

// PluginCall is one execution of a CNI plugin.
type PluginCall struct {
	// Command is the plugin's CNI_COMMAND: ADD, DEL, …
	Command string
	// Took is the time from the start of the plugin's process to its end, the plugins that it calls included.
	Took time.Duration
}

type observerKey struct{}

// ObservePlugins returns a context under which AddPod and DelPod report each plugin call.
func ObservePlugins(ctx context.Context, report func(PluginCall)) context.Context {
	return context.WithValue(ctx, observerKey{}, report)
}

// observed reports a call to the observer in the context, if there is one.
func observed(ctx context.Context, environ []string, took time.Duration) {
	report, ok := ctx.Value(observerKey{}).(func(PluginCall))
	if !ok {
		return
	}
	call := PluginCall{Took: took}
	for _, v := range environ {
		if command, ok := strings.CutPrefix(v, "CNI_COMMAND="); ok {
			call.Command = command
		}
	}
	report(call)
}
