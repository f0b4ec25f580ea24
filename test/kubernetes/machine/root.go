package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// maskedSysctls are settings of the whole machine that the kubelet would change. Files of the node with these values are
// mounted over them, so the kubelet changes nothing.
var maskedSysctls = map[string]string{
	"vm/overcommit_memory": "1",
	"vm/panic_on_oom":      "0",
	"kernel/panic":         "10",
	"kernel/panic_on_oops": "1",
}

// diskDirs are on the machine's disk and outlive a reboot.
var diskDirs = []string{"var/lib", "var/log/components", "var/cache", "var/tmp", "opt", "tmp", "etc.upper", "etc.work", "root"}

// makeDisk makes missing directories on the machine's disk. It reports whether the disk is new.
func makeDisk(name string) (fresh bool, err error) {
	disk := plan.Disk(name)
	if _, err := os.Stat(filepath.Join(disk, "var/run")); err == nil {
		return false, nil
	}
	for _, dir := range diskDirs {
		if err := os.MkdirAll(filepath.Join(disk, dir), 0o755); err != nil {
			return false, err
		}
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(filepath.Join(disk, dir), 0o777|os.ModeSticky); err != nil {
			return false, err
		}
	}
	return true, os.Symlink("/run", filepath.Join(disk, "var/run"))
}

// mounts mounts below root and keeps the first error.
type mounts struct {
	root string
	err  error
}

func (m *mounts) path(name string) string { return filepath.Join(m.root, name) }

func (m *mounts) mount(source, target, fstype string, flags uintptr, options string) {
	if m.err != nil {
		return
	}
	to := m.path(target)
	if m.err = os.MkdirAll(to, 0o755); m.err != nil {
		return
	}
	if err := unix.Mount(source, to, fstype, flags, options); err != nil {
		m.err = fmt.Errorf("mount %s %s at %s: %w", fstype, source, to, err)
	}
}

// bind mounts a tree or a file of this machine. A file needs an existing target.
func (m *mounts) bind(source, target string) {
	if info, err := os.Stat(source); m.err == nil && err == nil && !info.IsDir() {
		if m.err = os.MkdirAll(filepath.Dir(m.path(target)), 0o755); m.err == nil {
			m.err = cover(source, m.path(target))
		}
		return
	}
	m.mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
}

// cover mounts a file over another, which it creates if missing.
func cover(source, target string) error {
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}

func (m *mounts) readOnly(target string) {
	if m.err == nil {
		m.err = unix.Mount("", m.path(target), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
}

// makeRoot builds the file system of the machine, and makes it this mount namespace's root. /usr is this machine's; all
// writable files are the node's own.
func makeRoot(s Spec, all []hierarchy) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	fresh, err := makeDisk(s.Name)
	if err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	disk := plan.Disk(s.Name)
	m := &mounts{root: filepath.Join(disk, "root")}
	m.mount("root", "", "tmpfs", 0, "mode=755,size=16m")
	m.bind("/usr", "usr")
	m.readOnly("usr")
	m.programs()
	m.mount("etc", "etc", "overlay", 0, fmt.Sprintf("lowerdir=/etc,upperdir=%[1]s/etc.upper,workdir=%[1]s/etc.work", disk))
	for _, dir := range []string{"var", "opt", "tmp"} {
		m.bind(filepath.Join(disk, dir), dir)
	}
	m.mount("run", "run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=256m")
	m.bind(plan.Dir(s.Name), plan.Dir(s.Name))
	m.bind(plan.BootProgram, plan.BootProgram)
	m.mount("binaries", plan.BinDir, "overlay", unix.MS_RDONLY, "lowerdir="+strings.Join(s.Binaries, ":"))
	m.bind("/dev", "dev")
	m.mount("shm", "dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	m.mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	m.mount("sysfs", "sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	m.mount("bpf", "sys/fs/bpf", "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700")
	m.cgroups(all)
	m.maskSysctls()
	if m.err != nil {
		return m.err
	}
	if err := writeIdentity(m.root, s, fresh); err != nil {
		return err
	}
	return m.enter()
}

// programs are the directories of programs outside /usr, or links into /usr.
func (m *mounts) programs() {
	for _, dir := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		link, err := os.Readlink("/" + dir)
		switch {
		case m.err != nil || errors.Is(err, fs.ErrNotExist):
		case err == nil:
			m.err = os.Symlink(link, m.path(dir))
		default:
			m.bind("/"+dir, dir)
			m.readOnly(dir)
		}
	}
	for _, dir := range []string{"root", "home", "mnt", "media", "srv"} {
		if m.err == nil {
			m.err = os.Mkdir(m.path(dir), 0o755)
		}
	}
}

// cgroups mounts the hierarchies again: in the cgroup namespace, the machine's cgroup is their root.
func (m *mounts) cgroups(all []hierarchy) {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if len(all) > 1 {
		m.mount("cgroup", "sys/fs/cgroup", "tmpfs", flags, "mode=755")
	}
	for _, h := range all {
		if h.v2() {
			m.mount("cgroup2", h.mount, "cgroup2", flags, "")
		} else {
			m.mount("cgroup", h.mount, "cgroup", flags, h.options)
		}
	}
}

func (m *mounts) maskSysctls() {
	dir := m.path(".sysctls")
	for name, value := range maskedSysctls {
		file := filepath.Join(dir, name)
		if m.err == nil {
			m.err = os.MkdirAll(filepath.Dir(file), 0o755)
		}
		if m.err == nil {
			m.err = os.WriteFile(file, []byte(value+"\n"), 0o644)
		}
		if m.err == nil {
			m.err = cover(file, m.path(filepath.Join("proc/sys", name)))
		}
	}
}

// writeIdentity writes the files that differ between machines.
func writeIdentity(root string, s Spec, fresh bool) error {
	etc := filepath.Join(root, "etc")
	if fresh { // without CNI configurations of this machine
		if err := os.RemoveAll(filepath.Join(etc, "cni")); err != nil {
			return err
		}
	}
	files := map[string]string{
		"hostname":    s.Name + "\n",
		"hosts":       s.Hosts,
		"resolv.conf": "# There is no name server outside of the cluster.\n",
		"machine-id":  fmt.Sprintf("%032x\n", s.Name),
	}
	for name, content := range files {
		path := filepath.Join(etc, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be a symbolic link
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// enter makes the tree the root and unmounts the old one. Mounts are shared from here on, as the kubelet and privileged
// pods expect.
func (m *mounts) enter() error {
	old := m.path(".old")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(m.root, old); err != nil {
		return fmt.Errorf("enter the machine's root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/.old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount this machine's root: %w", err)
	}
	if err := os.Remove("/.old"); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}
