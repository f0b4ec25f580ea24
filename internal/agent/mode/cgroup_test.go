package mode

import (
	"errors"
	"strings"
	"testing"
)

func TestHighestCgroup(t *testing.T) {
	const rest = `22 1 0:21 / /sys rw - sysfs sysfs rw
23 1 0:22 / /proc rw - proc proc rw
`
	for name, c := range map[string]struct{ mounts, want string }{
		"on a node":                        {`30 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw`, "/sys/fs/cgroup"},
		"beside cgroup v1":                 {"30 22 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 22 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw", "/sys/fs/cgroup/unified"},
		"a part is mounted too":            {"30 22 0:26 /kubepods/a /mnt rw - cgroup2 cgroup2 rw\n31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "/sys/fs/cgroup"},
		"a container with the node's":      {"30 22 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n31 22 0:26 /../../.. /host/cgroup rw - cgroup2 cgroup2 rw", "/host/cgroup"},
		"a container without a namespace":  {`30 22 0:26 /kubepods/pod1/c1 /sys/fs/cgroup ro master:3 - cgroup2 cgroup rw`, "/sys/fs/cgroup"},
		"the node's is mounted in another": {"30 22 0:26 /kubepods/pod1/c1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n31 22 0:26 / /host/cgroup rw - cgroup2 cgroup2 rw", "/host/cgroup"},
	} {
		got, err := highestCgroup(strings.NewReader(rest + c.mounts + "\n"))
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, want %q (error %v)", name, got, c.want, err)
		}
	}
	if got, err := highestCgroup(strings.NewReader(rest)); !errors.Is(err, errNoCgroup) {
		t.Errorf("without cgroup2: got %q, error %v", got, err)
	}
}
