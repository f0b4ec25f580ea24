package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/cgroup"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// hierarchy is a mounted cgroup hierarchy. cgroup v1 has many, cgroup v2 has one.
type hierarchy struct {
	// mount is its mount point, on this machine and inside the nodes.
	mount string
	// options are the mount options of cgroup v1: controllers or name. Empty for v2.
	options string
}

func (h hierarchy) v2() bool { return h.options == "" }

// top is the cgroup of the cluster, of the cgroup of a machine.
func (h hierarchy) top() string              { return filepath.Join(h.mount, plan.CgroupName) }
func (h hierarchy) of(machine string) string { return filepath.Join(h.top(), machine) }

func hierarchies() ([]hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	found := parseHierarchies(string(data))
	if !slices.ContainsFunc(found, hierarchy.v2) {
		return nil, errors.New("no cgroup2 is mounted: the cluster keeps the processes of each machine in a cgroup v2 of its own")
	}
	return found, nil
}

// parseHierarchies reads the format of /proc/self/mountinfo, see proc_pid_mountinfo(5). A hierarchy that is
// mounted twice counts once.
func parseHierarchies(mountinfo string) []hierarchy {
	var found []hierarchy
	seen := map[string]bool{}
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 || right[0] != "cgroup" && right[0] != "cgroup2" {
			continue
		}
		h := hierarchy{mount: left[4]}
		if right[0] == "cgroup" {
			var options []string
			for option := range strings.SplitSeq(right[2], ",") {
				if option != "rw" && option != "ro" && !strings.HasPrefix(option, "release_agent=") {
					options = append(options, option)
				}
			}
			h.options = strings.Join(options, ",")
		}
		if !seen[h.options] {
			seen[h.options] = true
			found = append(found, h)
		}
	}
	return found
}

// makeCgroups makes the machine's cgroup in each hierarchy and opens the one of cgroup v2.
func makeCgroups(name string) (v2 *os.File, err error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		for _, dir := range []string{h.top(), h.of(name)} {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, fmt.Errorf("make cgroup: %w", err)
			}
			if err := inheritResources(dir, len(all) == 1); err != nil {
				return nil, err
			}
		}
		if h.v2() {
			if v2, err = os.Open(h.of(name)); err != nil {
				return nil, err
			}
		}
	}
	return v2, nil
}

// inheritResources sets what a new cgroup does not inherit: in v1 the CPUs and memory nodes of its parent, in v2 the
// controllers, unless the kubelet uses v1.
func inheritResources(dir string, onlyV2 bool) error {
	above := filepath.Dir(dir)
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if _, err := os.Stat(filepath.Join(above, "cgroup.controllers")); err == nil {
			break
		}
		value, err := os.ReadFile(filepath.Join(above, file))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
			return fmt.Errorf("set %s: %w", file, err)
		}
	}
	if !onlyV2 {
		return nil
	}
	controllers, err := os.ReadFile(filepath.Join(above, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("enable cgroup controller %s: %w", c, err)
		}
	}
	return nil
}

// joinCgroups moves this process into the machine's v1 cgroups. It started in the machine's v2 cgroup, so that a kill of
// that cgroup always ends all processes of the cluster.
func joinCgroups(name string, all []hierarchy) error {
	for _, h := range all {
		if h.v2() {
			continue
		}
		if err := os.WriteFile(filepath.Join(h.of(name), "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}

// removeCgroups kills all processes below one directory per hierarchy, and removes the directories. It is no error if
// there are none.
func removeCgroups(ctx context.Context, dir func(hierarchy) string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if !h.v2() {
			continue
		}
		if err := cgroup.Kill(dir(h)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, h := range all {
		if err := cgroup.Remove(ctx, dir(h)); err != nil {
			return err
		}
	}
	return nil
}

// processes returns the process ids, on the host, of the machine's processes that are in no container.
func processes(name string) ([]int, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, h := range all {
		if !h.v2() {
			continue
		}
		for _, dir := range []string{h.of(name), filepath.Join(h.of(name), servicesCgroup)} {
			some, err := cgroup.Processes(dir)
			if err != nil {
				return nil, err
			}
			pids = append(pids, some...)
		}
	}
	return pids, nil
}

// servicesCgroup is the leaf of the machine's v2 cgroup with its own processes: a v2 cgroup cannot have both processes
// and children with controllers.
const servicesCgroup = "services"

// commandCgroup returns the v2 cgroup for commands on the machine.
func commandCgroup(name string) (string, error) {
	all, err := hierarchies()
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(all, hierarchy.v2) // hierarchies fails without v2
	leaf := filepath.Join(all[at].of(name), servicesCgroup)
	if _, err := os.Stat(leaf); err == nil {
		return leaf, nil
	}
	return all[at].of(name), nil
}

// leaveRoot moves this process to servicesCgroup if v2 has controllers.
func leaveRoot(name string, all []hierarchy) error {
	for _, h := range all {
		controllers, err := os.ReadFile(filepath.Join(h.of(name), "cgroup.controllers"))
		if !h.v2() || err != nil || len(strings.TrimSpace(string(controllers))) == 0 {
			continue
		}
		leaf := filepath.Join(h.of(name), servicesCgroup)
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}
