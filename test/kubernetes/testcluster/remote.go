package testcluster

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/beeline-cni/beeline/lab/kubebuild"
	"github.com/beeline-cni/beeline/test/program"
)

// namespace holds the pods through which commands run on nodes.
const namespace = "smoke-nodes"

//go:embed nodes.yaml
var nodePods string

// Remote is the cluster of a kubeconfig. Commands on its nodes run in privileged pods.
type Remote struct {
	kubeconfig string
	// binaries are directories with kubectl and upstream's tests, at the end of PATH.
	binaries []string
	// pods starts the pods on the nodes once, and returns their names by node.
	pods func() (map[string]string, error)
}

func openRemote(kubeconfig string) (*Remote, error) {
	if _, err := os.Stat(kubeconfig); err != nil {
		return nil, fmt.Errorf("%s: %w", KubeconfigVariable, err)
	}
	cache, err := kubebuild.OpenCache()
	if err != nil {
		return nil, err
	}
	r := &Remote{kubeconfig: kubeconfig, binaries: cache.Bins(kubebuild.Version)}
	r.pods = sync.OnceValues(r.startPods)
	return r, nil
}

// Kubeconfig implements Cluster.
func (r *Remote) Kubeconfig() string { return r.kubeconfig }

// Nodes implements Cluster.
func (r *Remote) Nodes(ctx context.Context) ([]string, error) {
	names, err := r.kubectl(ctx, "", "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
	return strings.Fields(names), err
}

// Command implements Cluster: commands run on this machine.
func (r *Remote) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path := os.Getenv("PATH") + ":" + strings.Join(r.binaries, ":")
	// env finds the program in the new PATH; exec would search this process's.
	cmd := exec.CommandContext(ctx, "env", append([]string{"PATH=" + path, "KUBECONFIG=" + r.kubeconfig, name}, args...)...)
	return cmd
}

// NodeCommand implements Cluster.
func (r *Remote) NodeCommand(ctx context.Context, node string, args ...string) (*exec.Cmd, error) {
	pods, err := r.pods()
	if err != nil {
		return nil, fmt.Errorf("start pods on the nodes: %w", err)
	}
	pod, found := pods[node]
	if !found {
		return nil, fmt.Errorf("no pod of namespace %s runs on node %s", namespace, node)
	}
	return r.Command(ctx, "kubectl", append([]string{"-n", namespace, "exec", "-i", pod, "--", "/probe", "node"}, args...)...), nil
}

// Load implements Cluster, for containerd with or without k3s.
func (r *Remote) Load(ctx context.Context, archive string, nodes ...string) error {
	if len(nodes) == 0 {
		var err error
		if nodes, err = r.Nodes(ctx); err != nil {
			return err
		}
	}
	// Find the command first: kubectl waits long if the command for an archive does not run.
	const find = `command -v ctr || { command -v k3s && echo ctr; }`
	for _, node := range nodes {
		cmd, err := r.NodeCommand(ctx, node, "sh", "-c", find)
		if err != nil {
			return err
		}
		ctr, err := program.Output(cmd)
		if err != nil {
			return fmt.Errorf("find ctr on %s: %w", node, err)
		}
		f, err := os.Open(archive)
		if err != nil {
			return err
		}
		defer f.Close()
		if cmd, err = r.NodeCommand(ctx, node, append(strings.Fields(ctr), "-n", "k8s.io", "images", "import", "-")...); err != nil {
			return err
		}
		cmd.Stdin = f
		if _, err := program.Output(cmd); err != nil {
			return fmt.Errorf("load %s on %s: %w", archive, node, err)
		}
	}
	return nil
}

// Close removes the pods on the nodes.
func (r *Remote) Close() error {
	_, err := r.kubectl(context.Background(), "", "delete", "namespace", namespace, "--ignore-not-found")
	return err
}

func (r *Remote) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := r.Command(ctx, "kubectl", args...)
	cmd.Stdin = strings.NewReader(input)
	return program.Output(cmd)
}

// startPods starts a privileged pod on each node, and returns their names by node.
func (r *Remote) startPods() (map[string]string, error) {
	ctx := context.Background()
	manifest := strings.ReplaceAll(nodePods, "IMAGE", Image())
	if _, err := r.kubectl(ctx, manifest, "apply", "-f", "-"); err != nil {
		return nil, err
	}
	if _, err := r.kubectl(ctx, "", "-n", namespace, "rollout", "status", "daemonset/node", "--timeout=2m"); err != nil {
		return nil, fmt.Errorf("%w (do all nodes have the image %s, or can they pull it?)", err, Image())
	}
	list, err := r.kubectl(ctx, "", "-n", namespace, "get", "pods", "-l", "name=node", "-o", `jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	pods := map[string]string{}
	for line := range strings.Lines(list) {
		node, pod, _ := strings.Cut(strings.TrimSpace(line), " ")
		pods[node] = pod
	}
	return pods, nil
}
