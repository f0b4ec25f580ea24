package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
)

func TestFindHierarchies(t *testing.T) {
	mount := func(point, kind string, options map[string]string) *procfs.MountInfo {
		return &procfs.MountInfo{MountPoint: point, FSType: kind, SuperOptions: options}
	}
	v2 := mount("/sys/fs/cgroup/unified", "cgroup2", map[string]string{"rw": "", "nsdelegate": ""})
	hybrid := []*procfs.MountInfo{
		mount("/sys/fs/cgroup", "tmpfs", map[string]string{"rw": "", "mode": "755"}),
		mount("/sys/fs/cgroup/cpu", "cgroup", map[string]string{"rw": "", "cpuacct": "", "cpu": ""}),
		mount("/sys/fs/cgroup/systemd", "cgroup", map[string]string{"rw": "", "release_agent": "/x", "name": "systemd"}),
		v2,
		mount("/mnt/again", "cgroup", map[string]string{"rw": "", "cpu": "", "cpuacct": ""}),
	}
	want := hierarchies{
		v2: "/sys/fs/cgroup/unified",
		v1: map[string]string{"/sys/fs/cgroup/cpu": "cpu,cpuacct", "/sys/fs/cgroup/systemd": "name=systemd"},
	}
	if d := cmp.Diff(want, findHierarchies(hybrid), cmp.AllowUnexported(hierarchies{})); d != "" {
		t.Error(d)
	}
	want.v1 = map[string]string{}
	if d := cmp.Diff(want, findHierarchies([]*procfs.MountInfo{v2}), cmp.AllowUnexported(hierarchies{})); d != "" {
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
