package testcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/lab/kubebuild"
)

// namespace holds the pods through which commands run on nodes.
const namespace = "smoke-nodes"

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
	var errs []error
	for _, node := range nodes {
		errs = append(errs, func() error {
			ctr, err := r.onNode(ctx, node, "sh", "-c", find)
			if err != nil {
				return fmt.Errorf("find ctr on %s: %w", node, err)
			}
			f, err := os.Open(archive)
			if err != nil {
				return err
			}
			defer f.Close()
			cmd, err := r.NodeCommand(ctx, node, append(strings.Fields(ctr), "-n", "k8s.io", "images", "import", "-")...)
			if err != nil {
				return err
			}
			cmd.Stdin = f
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("load %s on %s: %w: %s", archive, node, err, out)
			}
			return nil
		}())
	}
	return errors.Join(errs...)
}

// onNode runs a command on a node and returns its output.
func (r *Remote) onNode(ctx context.Context, node string, args ...string) (string, error) {
	cmd, err := r.NodeCommand(ctx, node, args...)
	if err != nil {
		return "", err
	}
	out, err := cmd.Output()
	return string(out), err
}

// Close removes the pods on the nodes.
func (r *Remote) Close() error {
	_, err := r.kubectl(context.Background(), "", "delete", "namespace", namespace, "--ignore-not-found")
	return err
}

func (r *Remote) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := r.Command(ctx, "kubectl", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// startPods starts a privileged pod on each node, and returns their names by node.
func (r *Remote) startPods() (map[string]string, error) {
	ctx := context.Background()
	manifest, err := json.Marshal(nodePods(Image()))
	if err != nil {
		return nil, err
	}
	if _, err := r.kubectl(ctx, "", "get", "namespace", namespace); err != nil {
		if _, err := r.kubectl(ctx, "", "create", "namespace", namespace); err != nil {
			return nil, err
		}
	}
	const label = "pod-security.kubernetes.io/enforce=privileged"
	if _, err := r.kubectl(ctx, "", "label", "namespace", namespace, label, "--overwrite"); err != nil {
		return nil, err
	}
	if _, err := r.kubectl(ctx, string(manifest), "apply", "-f", "-"); err != nil {
		return nil, err
	}
	if _, err := r.kubectl(ctx, "", "-n", namespace, "rollout", "status", "daemonset/node", "--timeout=2m"); err != nil {
		return nil, fmt.Errorf("%w (do all nodes have the image %s, or can they pull it?)", err, Image())
	}
	text, err := r.kubectl(ctx, "", "-n", namespace, "get", "pods", "-l", "name=node", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("read pods: %w", err)
	}
	pods := map[string]string{}
	for _, p := range list.Items {
		pods[p.Spec.NodeName] = p.Name
	}
	return pods, nil
}

// nodePods are the pods on the nodes: `probe node` runs commands in the node's file system, network and process
// namespace.
func nodePods(image string) *appsv1.DaemonSet {
	labels := map[string]string{"name": "node"}
	propagation, privileged, grace := corev1.MountPropagationHostToContainer, true, int64(1)
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Name: "node", Namespace: namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					HostNetwork: true, HostPID: true, HostIPC: true, TerminationGracePeriodSeconds: &grace,
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{
						Name: "node", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"wait"},
						SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
						VolumeMounts:    []corev1.VolumeMount{{Name: "host", MountPath: "/host", MountPropagation: &propagation}},
					}},
					Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
				},
			},
		},
	}
}
