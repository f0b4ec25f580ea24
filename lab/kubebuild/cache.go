package kubebuild

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/lab/file"
)

// Cache is a directory for binaries and images. What is in it stays in use; remove it to start afresh.
type Cache struct{ dir string }

// OpenCache opens the cache at $BEELINE_KUBERNETES_CACHE, or else in the user's cache directory.
func OpenCache() (Cache, error) {
	dir := os.Getenv("BEELINE_KUBERNETES_CACHE")
	if dir == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			return Cache{}, err
		}
		dir = filepath.Join(home, "beeline-kubernetes")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Cache{}, err
	}
	return Cache{dir}, os.MkdirAll(dir, 0o755)
}

// Dir is the part of the cache for what is made of this version of Kubernetes.
func (c Cache) Dir(kubernetes string) string { return c.module(kubernetesModule(kubernetes)) }

// Shared is the part of the cache for what belongs to no version.
func (c Cache) Shared() string { return filepath.Join(c.dir, "shared") }

// Bins are the directories with the binaries for a version of Kubernetes.
func (c Cache) Bins(kubernetes string) []string {
	var dirs []string
	for _, queue := range queues(kubernetes) {
		for _, m := range queue {
			dirs = append(dirs, c.bin(m))
		}
	}
	return dirs
}

// Path is where the binary of that name is or will be.
func (c Cache) Path(kubernetes, name string) (string, error) {
	for _, queue := range queues(kubernetes) {
		for _, m := range queue {
			for _, p := range m.programs {
				if p.name() == name {
					return filepath.Join(c.bin(m), name), nil
				}
			}
		}
	}
	return "", fmt.Errorf("no recipe for a program called %s", name)
}

func (c Cache) module(m module) string { return filepath.Join(c.dir, m.name) }
func (c Cache) bin(m module) string    { return filepath.Join(c.module(m), "bin") }

// recipePath is where the recipe is kept that the program in the cache was built by.
func (c Cache) recipePath(m module, p program) string {
	return filepath.Join(c.module(m), "recipes", p.name())
}

// has reports whether the cache has the program, built by the current recipe.
func (c Cache) has(m module, p program) bool {
	built, err := os.ReadFile(c.recipePath(m, p))
	if err != nil || string(built) != m.recipe(p) {
		return false
	}
	_, err = os.Stat(filepath.Join(c.bin(m), p.name()))
	return err == nil
}

// keep takes a program into the cache. The recipe is taken away first and comes last: it never stands beside
// another recipe's binary.
func (c Cache) keep(m module, p program, built string) error {
	recipe := c.recipePath(m, p)
	for _, dir := range []string{c.bin(m), filepath.Dir(recipe)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Remove(recipe); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Rename(built, filepath.Join(c.bin(m), p.name())); err != nil {
		return err
	}
	return file.Replace(recipe, []byte(m.recipe(p)))
}
