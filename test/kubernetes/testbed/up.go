package testbed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/lab/kubebuild"
	"github.com/beeline-cni/beeline/test/kubernetes/config"
	"github.com/beeline-cni/beeline/test/kubernetes/images"
	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// Parts are the files from which a cluster starts.
type Parts struct {
	// Binaries are directories with the programs.
	Binaries []string
	// Images are the archives to import into every node.
	Images []images.Archive
}

// Beeline's files in the top directory of the project. `make image` builds the archive.
const (
	beelineManifest = "deploy/beeline.yaml"
	beelineArchive  = "bin/beeline-image.tar"
)

// Build builds what the cache lacks, and returns the parts of a cluster. It runs in the top directory of the project.
func Build(ctx context.Context, kubernetes string, print Printf) (Parts, error) {
	cache, err := kubebuild.OpenCache()
	if err != nil {
		return Parts{}, err
	}
	if err := kubebuild.Build(ctx, cache, kubernetes, nil, kubebuild.Printf(print)); err != nil {
		return Parts{}, err
	}
	archives, err := images.Build(ctx, cache, kubernetes, kubebuild.Printf(print))
	if err != nil {
		return Parts{}, err
	}
	return Parts{Binaries: cache.Bins(kubernetes), Images: archives}, nil
}

// pluginDir is Debian's directory of reference plugins.
const pluginDir = "/usr/lib/cni"

func checkRequirements(o plan.Options) error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root")
	}
	if _, err := os.Stat(beelineArchive); err != nil && o.Network == plan.NetworkBeeline {
		return fmt.Errorf("%w (make image)", err)
	}
	return nil
}

// Up starts a cluster and waits until its nodes and CoreDNS are ready, which with NetworkNone they cannot be. A cluster
// whose start failed stays, so that its logs can be read. The next Up or Down removes it, and also a cluster whose
// machines were killed.
func Up(ctx context.Context, o plan.Options, p Parts, print Printf) (*Testbed, error) {
	if err := checkRequirements(o); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := readRecord()
	switch {
	case err == nil:
		up, err := r.up(machine.Running)
		if err != nil {
			return nil, err
		}
		if up {
			return nil, fmt.Errorf("a cluster is up already (%s): use it, or remove it with down", r.who())
		}
		print("removing an incomplete cluster (%s)", r.who())
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if err := takeDown(ctx); err != nil {
		return nil, err
	}

	r = record{Options: o, Binaries: p.Binaries, Started: time.Now()}
	if r.Instances, err = lowInstances(); err != nil {
		return nil, err
	}
	if err := r.write(); err != nil {
		return nil, err
	}
	if r.Instances != "" {
		if err := setInstances(strconv.Itoa(enoughInstances)); err != nil {
			return nil, err
		}
	}
	b := open(r)
	b.print = print
	if err := b.start(ctx, p); err != nil {
		return nil, fmt.Errorf("%w\nThe incomplete cluster stays: logs shows more, down removes it", err)
	}
	r.Ready = true
	return b, r.write()
}

func (b *Testbed) start(ctx context.Context, p Parts) error {
	begin := time.Now()
	step := func(format string, args ...any) {
		b.print("%5.1f s  %s", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	if err := wireAll(ctx, b.Cluster); err != nil {
		return err
	}
	if err := b.configure(); err != nil {
		return err
	}
	for _, m := range b.Cluster.Machines() {
		if err := machine.Start(m.Name, b.binaries); err != nil {
			return err
		}
	}
	step("%d machines are on", len(b.Cluster.Machines()))

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var loading sync.WaitGroup
	defer loading.Wait()
	for _, n := range b.Cluster.Nodes {
		loading.Go(func() {
			if err := b.loadImages(ctx, n.Name, p.Images); err != nil {
				cancel(err)
			}
		})
	}
	if err := b.await(ctx, "the API server", b.apiServerReady); err != nil {
		return err
	}
	step("the API server is ready")
	for _, m := range b.Cluster.Machines() {
		if err := os.WriteFile(config.APIServerReady(m.Name), nil, 0o644); err != nil {
			return err
		}
	}
	if err := b.applyManifest(ctx, string(config.CoreDNS(b.Cluster))); err != nil {
		return err
	}
	ranges, err := b.awaitRanges(ctx)
	if err != nil {
		return err
	}
	step("the nodes are registered and have pod CIDRs")
	if err := b.installNetwork(ctx, ranges); err != nil {
		return err
	}
	if b.Cluster.Options.Network != plan.NetworkNone {
		if err := b.awaitAll(ctx, "nodes", "True", `{.status.conditions[?(@.type=="Ready")].status}`); err != nil {
			return err
		}
		step("the nodes are ready, with network %s", b.Cluster.Options.Network)
		if err := b.awaitAll(ctx, "deployments", "{.spec.replicas}", "{.status.availableReplicas}"); err != nil {
			return err
		}
		step("CoreDNS is available")
	}
	loading.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	step("all images are loaded")
	return nil
}

// loadImages loads all images of a node. The kubelet starts when it has the essential ones.
func (b *Testbed) loadImages(ctx context.Context, node string, archives []images.Archive) error {
	err := b.await(ctx, "containerd of "+node, func() (bool, error) {
		cmd, err := machine.Command(ctx, node, "test", "-S", config.ContainerdSocket)
		if err != nil {
			return false, err
		}
		return cmd.Run() == nil, nil
	})
	if err != nil {
		return err
	}
	for _, essential := range []bool{true, false} {
		for _, a := range archives {
			if a.Essential != essential {
				continue
			}
			if err := load(ctx, node, a); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(plan.Disk(node), config.ImagesLoaded), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}
