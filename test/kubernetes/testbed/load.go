package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/beeline-cni/beeline/test/kubernetes/images"
	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/program"
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
		loading.Go(func() { failures[i] = load(ctx, node, images.Archive{File: file}) })
	}
	loading.Wait()
	return errors.Join(failures...)
}

// load imports an archive on a node, with all names of the image.
func load(ctx context.Context, node string, a images.Archive) error {
	archive, err := os.Open(a.File)
	if err != nil {
		return err
	}
	defer archive.Close()
	err = ctr(ctx, node, archive, "import", "--local", "-")
	if err == nil && len(a.Names) > 1 {
		err = ctr(ctx, node, nil, append([]string{"tag", "--force"}, a.Names...)...)
	}
	if err != nil {
		return fmt.Errorf("load %s on %s: %w", a.File, node, err)
	}
	return nil
}

// ctr runs `ctr images` on a node.
func ctr(ctx context.Context, node string, input io.Reader, args ...string) error {
	cmd, err := machine.Command(ctx, node, append([]string{"ctr", "-n", namespace, "images"}, args...)...)
	if err != nil {
		return err
	}
	cmd.Stdin = input
	_, err = program.Output(cmd)
	return err
}
