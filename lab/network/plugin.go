package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
)

// AddPod makes a pod on a node by CNI ADD, as a runtime does: namespace first, then the plugins, DEL when they fail. The
// plugins hear that it is in the namespace default. A network without pods returns the node itself.
func AddPod(ctx context.Context, n Network, lab *testbed.Lab, node *testbed.Node, name string) (*testbed.Pod, error) {
	return makePod(ctx, n, lab, node, policies.Pod{Namespace: policies.Default, Name: name})
}

func makePod(ctx context.Context, n Network, lab *testbed.Lab, node *testbed.Node, p policies.Pod) (_ *testbed.Pod, err error) {
	cni, err := n.Plugin(lab, node)
	if err != nil {
		return nil, err
	}
	if cni == nil {
		return NodeAsPod(node, p.Name, lab.MTU), nil
	}
	if b, ok := n.(Beeline); ok {
		if err := b.declare(lab, node, p); err != nil {
			return nil, err
		}
	}
	// Not a named result: what is undone below must not be what is returned.
	pod, err := lab.NewPodNetns(ctx, node, p.Name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, DelPod(context.WithoutCancel(ctx), n, lab, pod))
		}
	}()
	if err = addPatiently(ctx, cni, pod, runtimeConf(pod, p)); err == nil && len(pod.Addresses) == 0 {
		err = errors.New("the result has no addresses")
	}
	if err != nil {
		return nil, fmt.Errorf("CNI ADD of pod %q on %s: %w", p.Name, node.Name, err)
	}
	if pod.MTU, err = routeMTU(pod.Netns, podOfAnotherNode(lab, pod.Node)); err != nil {
		return nil, fmt.Errorf("pod %q on %s: %w", p.Name, node.Name, err)
	}
	return pod, lab.SavePod(pod)
}

// addPatience is how long ADD is repeated while the plugin says "try again later", as a runtime does: an agent that has just
// started may not have read all of the cluster.
const addPatience = 10 * time.Second

func addPatiently(ctx context.Context, cni *plugin.Network, pod *testbed.Pod, conf *libcni.RuntimeConf) error {
	var again *types.Error
	for deadline := time.Now().Add(addPatience); ; {
		_, err := cni.Add(ctx, pod, conf)
		if !errors.As(err, &again) || again.Code != types.ErrTryAgainLater || time.Now().After(deadline) {
			return err
		}
		if err := errors.Join(cni.Delete(ctx, conf), wait.For(ctx, 50*time.Millisecond)); err != nil {
			return err
		}
	}
}

// DelPod removes a pod made by AddPod; its namespace goes in any case.
func DelPod(ctx context.Context, n Network, lab *testbed.Lab, pod *testbed.Pod) error {
	node, ok := lab.NodeNamed(pod.Node)
	if !ok {
		return fmt.Errorf("pod %q: no node %q", pod.Name, pod.Node)
	}
	cni, err := n.Plugin(lab, node)
	if err != nil || cni == nil {
		return err
	}
	if err = cni.Delete(ctx, runtimeConf(pod, policies.Pod{Namespace: policies.Default, Name: pod.Name})); err != nil {
		err = fmt.Errorf("CNI DEL of pod %q on %s: %w", pod.Name, node.Name, err)
	}
	return errors.Join(err, lab.DeletePod(ctx, pod))
}

// NodeAsPod is a node as an end of traffic, as where a network has no pods. It is not recorded in the lab.
func NodeAsPod(node *testbed.Node, name string, mtu int) *testbed.Pod {
	pod := &testbed.Pod{Name: name, Node: node.Name, Netns: node.Netns, MTU: mtu}
	for _, a := range node.Addresses {
		pod.Addresses = append(pod.Addresses, a.Addr())
	}
	return pod
}

// AddKnownPod makes a pod as a cluster does: its object exists before its network, and has the addresses afterwards.
// Agents isolate a pod that they do not know. put adds the object to the API server, or to what stands for it.
func AddKnownPod(ctx context.Context, c Network, lab *testbed.Lab, node *testbed.Node, p policies.Pod, put func(...runtime.Object) error) (*testbed.Pod, error) {
	p.Node = node.Name
	if err := put(p.Object()); err != nil {
		return nil, fmt.Errorf("put pod %s: %w", p.Key(), err)
	}
	pod, err := makePod(ctx, c, lab, node, p)
	if err != nil {
		return nil, fmt.Errorf("add pod %s of %s: %w", p.Name, c.Name(), err)
	}
	p.Addresses = pod.Addresses
	if err := put(p.Object()); err != nil {
		return nil, fmt.Errorf("put addresses of pod %s: %w", p.Key(), err)
	}
	return pod, nil
}

func runtimeConf(pod *testbed.Pod, p policies.Pod) *libcni.RuntimeConf {
	return plugin.RuntimeConf(pod, p.Namespace, p.Name, [2]string{"K8S_POD_UID", p.UID()})
}

// podOfAnotherNode is an address that a pod there could have.
func podOfAnotherNode(lab *testbed.Lab, node string) netip.Addr {
	of := lab.Node(0)
	for _, n := range lab.Nodes() {
		if n.Name != node {
			of = n
			break
		}
	}
	return of.PodCIDRs[0].Addr().Next().Next()
}

// ReferenceDirs is where distributions put the reference plugins: Debian's directory, then the usual one.
var ReferenceDirs = []string{"/usr/lib/cni", "/opt/cni/bin"}

// referenceVersion is the newest CNI version that Debian 12's reference plugins know.
const referenceVersion = "1.0.0"

// referencePlugin is a configuration of one reference plugin.
func referencePlugin(node *testbed.Node, name string, conf map[string]any) (*plugin.Network, error) {
	cni, err := plugin.NewNetwork(node, ReferenceDirs, referenceVersion, name, conf)
	return &cni, err
}

// referenceMissing says which of the plugins is not installed; empty when all are.
func referenceMissing(plugins ...string) string {
	for _, p := range plugins {
		if _, err := invoke.FindInPath(p, ReferenceDirs); err != nil {
			return fmt.Sprintf("not installed: CNI plugin %s in %s (Debian package containernetworking-plugins)",
				p, strings.Join(ReferenceDirs, " or "))
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
	for _, dir := range ReferenceDirs {
		if _, err := os.Stat(dir); err == nil {
			facts["plugins"] = "reference plugins in " + dir
			return
		}
	}
}
