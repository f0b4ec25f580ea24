package network

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// declare writes the manifest of a pod with the network's annotations, for agents that read manifests.
func (c Beeline) declare(lab *testbed.Lab, node *testbed.Node, p policies.Pod) error {
	if len(c.annotations) == 0 || hasAPIServer(lab) {
		return nil
	}
	p.Node, p.Annotations = node.Name, c.annotations
	text, err := yaml.Marshal(p.Object())
	if err != nil {
		return fmt.Errorf("encode pod %s: %w", p.Key(), err)
	}
	return os.WriteFile(filepath.Join(manifestsOf(lab), "pod-"+p.Name+".yaml"), text, 0o644)
}
