package network

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// addressesPerNode is how many addresses of each family the IPPool of a node has.
const addressesPerNode = 40

// writePools writes an IPPool for the pods of each node, with addresses of the wire: without an API server, nodes do not know what others
// have allocated.
func writePools(lab *testbed.Lab, device string) error {
	var all bytes.Buffer
	for i, node := range lab.Nodes() {
		text, err := yaml.Marshal(poolOf(node, device, 50+i*addressesPerNode))
		if err != nil {
			return fmt.Errorf("encode IPPool of %s: %w", node.Name, err)
		}
		fmt.Fprintf(&all, "---\n%s", text)
	}
	return os.WriteFile(filepath.Join(manifestsOf(lab), "ippools.yaml"), all.Bytes(), 0o644)
}

// poolOf is an IPPool with addresses from first on, of 256 in each subnet.
func poolOf(node *testbed.Node, device string, first int) *v1alpha1.IPPool {
	probe := false // no other machine has addresses of the ranges
	pool := &v1alpha1.IPPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "IPPool"},
		ObjectMeta: metav1.ObjectMeta{Name: "pods-" + node.Name},
		Spec: v1alpha1.IPPoolSpec{
			Default: true, Device: device, Probe: &probe,
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node.Name}},
		},
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
		pool.Spec.Ranges = append(pool.Spec.Ranges, fmt.Sprintf("%s-%s", at(first), at(first+addressesPerNode-1)))
	}
	return pool
}
