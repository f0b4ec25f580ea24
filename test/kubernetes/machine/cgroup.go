package machine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/beeline-cni/beeline/lab/cgroup"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// hierarchies are the mounted cgroup hierarchies. Nodes have them at the same mount points.
type hierarchies struct {
	// v2 is the mount point of cgroup v2.
	v2 string
	// v1 are the mount points of cgroup v1 with their mount options: controllers or name.
	v1 map[string]string
}

func readHierarchies() (hierarchies, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return hierarchies{}, err
	}
	h := findHierarchies(mounts)
	if h.v2 == "" {
		err = errors.New("no cgroup2 is mounted: the cluster keeps the processes of each machine in a cgroup v2 of its own")
	}
	return h, err
}

// findHierarchies counts a hierarchy that is mounted twice once.
func findHierarchies(mounts []*procfs.MountInfo) hierarchies {
	h := hierarchies{v1: map[string]string{}}
	for _, m := range mounts {
		switch m.FSType {
		case "cgroup2":
			h.v2 = cmp.Or(h.v2, m.MountPoint)
		case "cgroup":
			var options []string
			for name, value := range m.SuperOptions {
				switch name {
				case "rw", "ro", "release_agent":
				case "name":
					options = append(options, "name="+value)
				default:
					options = append(options, name)
				}
			}
			slices.Sort(options)
			all := strings.Join(options, ",")
			if !slices.Contains(slices.Collect(maps.Values(h.v1)), all) {
				h.v1[m.MountPoint] = all
			}
		}
	}
	return h
}

// group is the directory of the machine's cgroup v2; without a name, of the cluster's.
func (h hierarchies) group(name string) string { return filepath.Join(h.v2, plan.CgroupName, name) }

// services is the leaf of the machine's cgroup v2 with its own processes, if v2 has controllers.
func (h hierarchies) services(name string) string {
	leaf := filepath.Join(h.group(name), "services")
	if _, err := os.Stat(leaf); err != nil {
		return h.group(name)
	}
	return leaf
}

// remove kills all processes of a machine, or without a name of the cluster, and removes the cgroups. It is no error if
// there are none.
func (h hierarchies) remove(ctx context.Context, name string) error {
	if err := cgroup.Kill(h.group(name)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, mount := range append(slices.Collect(maps.Keys(h.v1)), h.v2) {
		if err := cgroup.Remove(ctx, filepath.Join(mount, plan.CgroupName, name)); err != nil {
			return err
		}
	}
	return nil
}
