package images

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/beeline-cni/beeline/lab/kubebuild"
)

// Build makes the images that the cache lacks for this version of Kubernetes, and returns all of them. The cache must have
// the binaries. It runs in the top directory of the project.
func Build(ctx context.Context, c kubebuild.Cache, kubernetes string, print kubebuild.Printf) ([]Archive, error) {
	dir := filepath.Join(c.Dir(kubernetes), "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	listed, err := list(ctx, c, kubernetes, filepath.Join(dir, "repositories.yaml"))
	if err != nil {
		return nil, err
	}
	b := &builder{cache: c, kubernetes: kubernetes, dir: dir, print: print}
	var all []Archive
	for _, short := range slices.Sorted(maps.Keys(listed)) {
		a := Archive{File: filepath.Join(dir, short+".tar"), Names: listed[short], Essential: essential[short] != ""}
		if err := b.image(ctx, a, recipes[short]); err != nil {
			return nil, fmt.Errorf("make image %s: %w", short, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// list returns the images that upstream's tests use, from these repositories.
func list(ctx context.Context, c kubebuild.Cache, kubernetes, repositories string) (map[string][]string, error) {
	tests, err := c.Path(kubernetes, "e2e.test")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(repositories, []byte(RepositoryList), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, tests, "--list-images")
	cmd.Env = append(os.Environ(), "KUBE_TEST_REPO_LIST="+repositories)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list-images: %w", tests, err)
	}
	return match(string(out)), nil
}

type builder struct {
	cache      kubebuild.Cache
	kubernetes string
	dir        string
	print      kubebuild.Printf
}

// image makes an archive unless it exists with the same recipe and binaries.
func (b *builder) image(ctx context.Context, a Archive, i image) error {
	recipe := a.Names[0] + " " + i.text()
	var sources []string
	for _, program := range slices.Sorted(maps.Keys(i.programs)) {
		path, err := b.cache.Path(b.kubernetes, program)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		recipe += fmt.Sprintf("\n%s %d %s", program, info.Size(), info.ModTime().UTC())
		sources = append(sources, path+"="+i.programs[program])
	}
	recipePath := a.File + ".recipe"
	made, err := os.ReadFile(recipePath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(a.File); err == nil && string(made) == recipe {
		return nil
	}
	b.print("making image %s", a.Names[0])
	work, err := os.MkdirTemp(b.dir, ".work-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	trees, err := b.trees(ctx, i, work)
	if err != nil {
		return err
	}
	if len(i.files) > 0 {
		kubernetesSource, err := kubebuild.Source(ctx, b.kubernetes)
		if err != nil {
			return err
		}
		for _, path := range slices.Sorted(maps.Keys(i.files)) {
			sources = append(sources, filepath.Join(kubernetesSource, path)+"="+i.files[path])
		}
	}
	fresh := filepath.Join(work, "image.tar")
	args := []string{"run", ".", "-o", fresh, "-name", a.Names[0], "-entrypoint", i.entrypoint, "-cmd", i.cmd,
		"-env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if err := run(ctx, "build/image", "go", append(append(args, trees...), sources...)...); err != nil {
		return err
	}
	if err := os.Remove(recipePath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, a.File); err != nil {
		return err
	}
	return os.WriteFile(recipePath, []byte(recipe), 0o644)
}

// trees returns the packer's arguments for the directories of the image, lower layers first, those that it makes below work.
func (b *builder) trees(ctx context.Context, i image, work string) ([]string, error) {
	var args []string
	base := ""
	if i.base != "" {
		var err error
		if base, err = debianTree(ctx, b.cache.Shared(), i.base, packages[i.base], b.print); err != nil {
			return nil, err
		}
		args = append(args, base+"=/")
	}
	if i.extra != "" {
		dir := filepath.Join(work, "extra")
		if err := makeExtra(ctx, i.extra, dir, base); err != nil {
			return nil, err
		}
		args = append(args, dir+"=/")
	}
	return args, nil
}

// The trees of images: what extra.sh makes, and the program pause.
const (
	agnhostFiles = "agnhost-files"
	applets      = "applets"
	pauseProgram = "pause"
)

//go:embed extra.sh
var extraScript string

//go:embed pause/main.go
var pauseSource string

// makeExtra makes a tree in a new directory. base is the tree of Debian packages of the same image.
func makeExtra(ctx context.Context, name, dir, base string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if name == pauseProgram {
		return run(ctx, "", "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
			"-o", filepath.Join(dir, "pause"), "./test/kubernetes/images/pause")
	}
	return run(ctx, dir, "sh", "-c", extraScript, "sh", name, base)
}
