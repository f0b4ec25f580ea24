// Package plugin runs CNI plugins on a node of a lab, as a container runtime does on its own.
package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// PodInterface is the device that plugins make in a pod.
const PodInterface = "eth0"

// Network is a CNI configuration list on one node, as a runtime reads it from /etc/cni/net.d.
type Network struct {
	CNI  *libcni.CNIConfig
	List *libcni.NetworkConfigList
}

// NewNetwork is the configuration list of these plugins on a node. dirs are searched for their programs, in order.
func NewNetwork(n *testbed.Node, dirs []string, cniVersion, name string, plugins ...map[string]any) (Network, error) {
	conf, err := json.Marshal(map[string]any{"cniVersion": cniVersion, "name": name, "plugins": plugins})
	if err != nil {
		return Network{}, fmt.Errorf("encode CNI configuration: %w", err)
	}
	return ReadNetwork(n, dirs, conf)
}

// ReadNetwork is a configuration list on a node, in the JSON of a file *.conflist.
func ReadNetwork(n *testbed.Node, dirs []string, conflist []byte) (Network, error) {
	return readNetwork(n, dirs, conflist, &executor{netns: n.Netns})
}

func readNetwork(n *testbed.Node, dirs []string, conflist []byte, by invoke.Exec) (Network, error) {
	list, err := libcni.NetworkConfFromBytes(conflist)
	if err != nil {
		return Network{}, fmt.Errorf("read CNI configuration: %w", err)
	}
	return Network{libcni.NewCNIConfigWithCacheDir(dirs, filepath.Join(n.StateDir, "cni-cache"), by), list}, nil
}

// RuntimeConf is the runtime configuration of a pod that has this namespace and name in the cluster, with more
// arguments.
func RuntimeConf(pod *testbed.Pod, namespace, name string, more ...[2]string) *libcni.RuntimeConf {
	id := filepath.Base(pod.Path)
	return &libcni.RuntimeConf{
		ContainerID: id,
		NetNS:       pod.Path,
		IfName:      PodInterface,
		Args: append([][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", namespace},
			{"K8S_POD_NAME", name},
			{"K8S_POD_INFRA_CONTAINER_ID", id},
		}, more...),
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
	pod.Addresses = addresses(result)
	return result, nil
}

// Delete calls CNI DEL for a pod.
func (w Network) Delete(ctx context.Context, conf *libcni.RuntimeConf) error {
	return w.CNI.DelNetworkList(ctx, w.List, conf)
}

// addresses are those that a pod has by the result of ADD, IPv4 first.
func addresses(result *types100.Result) []netip.Addr {
	var addresses []netip.Addr
	for _, ip := range result.IPs {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addresses = append(addresses, a.Unmap())
		}
	}
	slices.SortStableFunc(addresses, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return addresses
}

// Call is one execution of a CNI plugin.
type Call struct {
	// Command is the plugin's CNI_COMMAND: ADD, DEL, …
	Command string
	// Took is the time from the start of the plugin's process to its end, the plugins that it calls included.
	Took time.Duration
}

type observerKey struct{}

// Observe returns a context under which each plugin call is reported.
func Observe(ctx context.Context, report func(Call)) context.Context {
	return context.WithValue(ctx, observerKey{}, report)
}

// observed reports a call that began at this time.
func observed(ctx context.Context, command string, start time.Time) {
	if report, ok := ctx.Value(observerKey{}).(func(Call)); ok {
		report(Call{command, time.Since(start)})
	}
}

// variables are those of a CNI plugin in an environment.
func variables(environ []string) map[string]string {
	all := map[string]string{}
	for _, v := range environ {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CNI_") {
			all[name] = value
		}
	}
	return all
}

// executor runs plugins in a node's network namespace and cgroup: it is the invoke.Exec that libcni calls them by.
type executor struct {
	version.PluginDecoder
	netns testbed.Netns
}

// ExecPlugin is part of invoke.Exec. The error of a plugin that fails in order is a *types.Error.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	start := time.Now()
	err := e.netns.Run(cmd)
	observed(ctx, variables(environ)["CNI_COMMAND"], start)
	if err == nil {
		return stdout.Bytes(), nil
	}
	// A plugin that fails in order says why in an error object on its standard output.
	var said types.Error
	if json.Unmarshal(stdout.Bytes(), &said) == nil && said.Msg != "" {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), &said)
	}
	return nil, fmt.Errorf("run %s: %w: %s", filepath.Base(path), err, strings.TrimSpace(stderr.String()))
}

// FindInPath is part of invoke.Exec.
func (e *executor) FindInPath(plugin string, dirs []string) (string, error) {
	return invoke.FindInPath(plugin, dirs)
}
