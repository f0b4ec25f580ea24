package network

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// The hosts of each subnet of the wire that pods of IPPools are: those between the nodes and the hosts of a lab that are no nodes.
const (
	firstPodHost = testbed.MaxNodes + 1
	podHosts     = 205
	probedHosts  = 24
)

// probedPool is the IPPool whose addresses are probed before a pod gets them.
const probedPool = "probed"

// Probed are the annotations of pods whose addresses are probed, in networks with Pools.
var Probed = map[string]string{v1alpha1.AnnotationIPPool: probedPool}

// HasPools reports whether pods of a network have addresses of the wire, from IPPools. Its agents are measured with an
// API server, because only by that they know the addresses of other nodes' pods.
func HasPools(n Network) bool {
	b, ok := n.(Beeline)
	return ok && b.poolDevice != ""
}

// Pools are the IPPools of a network whose pods have addresses of the wire, for the lab's API server: one for all pods
// without probes, and one for pods with the annotations Probed. Nodes are in one subnet. Other networks have none.
func Pools(n Network, lab *testbed.Lab) []runtime.Object {
	if !HasPools(n) {
		return nil
	}
	device := n.(Beeline).poolDevice
	probed := poolOf(probedPool, device, lab.Node(0), firstPodHost+podHosts, probedHosts)
	probed.Spec.Default, probed.Spec.Probe = false, nil
	return []runtime.Object{poolOf("pods", device, lab.Node(0), firstPodHost, podHosts), probed}
}

// writePools writes an IPPool for the pods of each node: without an API server, nodes do not know what others have
// allocated.
func writePools(lab *testbed.Lab, device string) error {
	var all bytes.Buffer
	each := podHosts / len(lab.Nodes())
	for i, node := range lab.Nodes() {
		text, err := yaml.Marshal(PoolOfNode(node, device, firstPodHost+i*each, each))
		if err != nil {
			return fmt.Errorf("encode IPPool of %s: %w", node.Name, err)
		}
		fmt.Fprintf(&all, "---\n%s", text)
	}
	return os.WriteFile(filepath.Join(manifestsOf(lab), "ippools.yaml"), all.Bytes(), 0o644)
}

// PoolOfNode is an IPPool for the pods of one node: so many hosts of the wire, the first one included, without probes.
func PoolOfNode(node *testbed.Node, device string, first, count int) *v1alpha1.IPPool {
	pool := poolOf("pods-"+node.Name, device, node, first, count)
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node.Name}}
	return pool
}

// poolOf is a default IPPool of so many hosts, the first one included, in the subnets of a node.
func poolOf(name, device string, node *testbed.Node, first, count int) *v1alpha1.IPPool {
	probe := false // no other machine has addresses of the ranges
	pool := &v1alpha1.IPPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "IPPool"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.IPPoolSpec{Default: true, Device: device, Probe: &probe, NamespaceMax: int32(count)},
	}
	for _, own := range node.Addresses {
		subnet := own.Masked()
		at := func(last int) netip.Addr {
			a := subnet.Addr().AsSlice()
			a[len(a)-1] = byte(last)
			addr, _ := netip.AddrFromSlice(a)
			return addr
		}
		pool.Spec.Subnets = append(pool.Spec.Subnets, subnet.String())
		pool.Spec.Ranges = append(pool.Spec.Ranges, fmt.Sprintf("%s-%s", at(first), at(first+count-1)))
	}
	return pool
}
