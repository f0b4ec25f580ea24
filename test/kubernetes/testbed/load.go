package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/beeline-cni/beeline/test/kubernetes/images"
	"github.com/beeline-cni/beeline/test/kubernetes/machine"
)

// namespace is the namespace of Kubernetes in containerd.
const namespace = "k8s.io"

// Load imports an image archive into containerd of the given nodes, or of all.
func (b *Testbed) Load(ctx context.Context, file string, nodes ...string) error {
	if len(nodes) == 0 {
		for _, n := range b.Cluster.Nodes {
			nodes = append(nodes, n.Name)
		}
	}
	failures := make([]error, len(nodes))
	var loading sync.WaitGroup
	for i, node := range nodes {
		loading.Go(func() { failures[i] = load(ctx, node, file) })
	}
	loading.Wait()
	return errors.Join(failures...)
}

func load(ctx context.Context, node, file string) error {
	archive, err := os.Open(file)
	if err != nil {
		return err
	}
	defer archive.Close()
	cmd, err := machine.Command(ctx, node, "ctr", "-n", namespace, "images", "import", "--local", "-")
	if err != nil {
		return err
	}
	cmd.Stdin = archive
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("load %s on %s: %w: %s", file, node, err, out)
	}
	return nil
}

// loadAll loads either the essential archives or the others on one node, with all their names.
func loadAll(ctx context.Context, node string, archives []images.Archive, essential bool) error {
	for _, a := range archives {
		if a.Essential != essential {
			continue
		}
		if err := load(ctx, node, a.File); err != nil {
			return err
		}
		if len(a.Names) == 1 {
			continue
		}
		cmd, err := machine.Command(ctx, node, append([]string{"ctr", "-n", namespace, "images", "tag", "--force"}, a.Names...)...)
		if err != nil {
			return err
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("tag image %s on %s: %w: %s", a.Names[0], node, err, out)
		}
	}
	return nil
}
