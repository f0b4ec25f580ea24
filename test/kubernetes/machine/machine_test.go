package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseHierarchies(t *testing.T) {
	const hybrid = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime shared:5 - cgroup cgroup rw,release_agent=/x,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
42 31 0:29 / /mnt/again rw,relatime - cgroup cgroup rw,cpu,cpuacct
`
	want := []hierarchy{
		{mount: "/sys/fs/cgroup/cpu", options: "cpu,cpuacct"},
		{mount: "/sys/fs/cgroup/systemd", options: "name=systemd"},
		{mount: "/sys/fs/cgroup/unified"},
	}
	got := parseHierarchies(hybrid)
	if d := cmp.Diff(want, got, cmp.AllowUnexported(hierarchy{})); d != "" {
		t.Error(d)
	}
	if got[0].v2() || !got[2].v2() {
		t.Error("the version is mistaken")
	}
	const unified = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	if d := cmp.Diff([]hierarchy{{mount: "/sys/fs/cgroup"}}, parseHierarchies(unified), cmp.AllowUnexported(hierarchy{})); d != "" {
		t.Error(d)
	}
}

func TestInnermostPid(t *testing.T) {
	for status, want := range map[string]string{
		"Name:\tboot\nNSpid:\t4711\t1\nThreads:\t3\n": "1",
		"NSpid:\t4711\n": "4711",
		"Name:\tx\n":     "",
	} {
		if got := innermostPid(status); got != want {
			t.Errorf("%q: %q, want %q", status, got, want)
		}
	}
}
