package testbed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/program"
)

// ErrNotUp is the error if no cluster is up, or an incomplete one.
var ErrNotUp = errors.New("no cluster is up")

// Testbed is a cluster that is up.
type Testbed struct {
	// Cluster is its plan: options, names and addresses.
	Cluster plan.Cluster
	// Started is the time of the start.
	Started time.Time

	binaries []string
	print    Printf
}

// Printf prints progress.
type Printf func(format string, args ...any)

// Open returns the cluster that is up. It fails with ErrNotUp if there is none.
func Open() (*Testbed, error) {
	r, err := readRecord()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotUp
	}
	if err != nil {
		return nil, err
	}
	if !r.Ready {
		return nil, fmt.Errorf("%w: one is starting, or its start failed (%s)", ErrNotUp, r.who())
	}
	return open(r), nil
}

func open(r record) *Testbed {
	return &Testbed{Cluster: plan.New(r.Options), Started: r.Started, binaries: r.Binaries, print: func(string, ...any) {}}
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (b *Testbed) Kubeconfig() string { return plan.Kubeconfig }

// Nodes are the names of the nodes.
func (b *Testbed) Nodes(context.Context) (names []string, err error) {
	for _, n := range b.Cluster.Nodes {
		names = append(names, n.Name)
	}
	return names, nil
}

// environ returns the variables that Command adds to this process's own.
func (b *Testbed) environ() []string {
	return []string{
		"KUBECONFIG=" + plan.Kubeconfig,
		"KUBE_TEST_REPO_LIST=" + repositoryList,
		"PATH=" + strings.Join(b.binaries, ":") + ":" + os.Getenv("PATH"),
	}
}

// proxies are variables that would send requests for pods to a proxy.
var proxies = []string{"http_proxy", "https_proxy", "all_proxy", "no_proxy"}

// Command makes a command in the control plane's network namespace, which reaches the API server, nodes and pods, with
// the variables of environ. Everything else is this machine's.
func (b *Testbed) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + plan.NetnsPath(plan.ControlPlane), "--", name}, args...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		key, _, _ := strings.Cut(variable, "=")
		return slices.Contains(proxies, strings.ToLower(key))
	})
	cmd.Env = append(cmd.Env, b.environ()...)
	return cmd
}

// NodeCommand makes a command on a node, in all its namespaces and without this process's environment.
func (b *Testbed) NodeCommand(ctx context.Context, node string, args ...string) (*exec.Cmd, error) {
	if _, err := b.Cluster.Node(node); err != nil {
		return nil, err
	}
	return machine.Command(ctx, node, args...)
}

// Kubectl runs kubectl and returns its output. The error contains stderr.
func (b *Testbed) Kubectl(ctx context.Context, args ...string) (string, error) {
	return program.Output(b.Command(ctx, "kubectl", args...))
}
