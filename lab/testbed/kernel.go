package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/cgroup"
)

// makeNetns makes a named namespace, with lo up and the sysctls that every namespace of a lab has.
func (l *Lab) makeNetns(n Netns, ipv6 bool) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, removeNetns(n.Path))
		}
	}()
	inLab := Netns{Cgroup: l.Switch().Cgroup} // so that Down ends it if this process does not
	if err := inLab.ip(context.Background(), "netns add "+filepath.Base(n.Path)); err != nil {
		return fmt.Errorf("make namespace %s: %w", n.Path, err)
	}
	for _, s := range namespaceSysctls(l.CongestionControl, ipv6) {
		if err := n.WriteSysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return n.ip(context.Background(), "link set lo up")
}

// namespaceSysctls are set in every namespace of a lab before it has devices. A namespace inherits some of
// the machine's IPv4 settings; those that matter here are the kernel's defaults again, so that labs are alike
// on all machines. The wire is quiet: no router solicitations, and addresses are usable at once (they are
// unique by plan, so nothing has to be detected).
func namespaceSysctls(congestion string, ipv6 bool) [][2]string {
	settings := [][2]string{
		{"net/ipv4/ip_forward", "0"},
		{"net/ipv4/conf/all/rp_filter", "0"},
		{"net/ipv4/conf/default/rp_filter", "0"},
		{"net/ipv4/tcp_congestion_control", congestion},
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return settings
	}
	if !ipv6 {
		return append(settings,
			[2]string{"net/ipv6/conf/all/disable_ipv6", "1"},
			[2]string{"net/ipv6/conf/default/disable_ipv6", "1"})
	}
	return append(settings,
		[2]string{"net/ipv6/conf/default/accept_dad", "0"},
		[2]string{"net/ipv6/conf/default/dad_transmits", "0"},
		[2]string{"net/ipv6/conf/default/accept_ra", "0"},
		[2]string{"net/ipv6/conf/default/router_solicitations", "0"})
}

// congestionControl is that of all namespaces of a lab: the kernel's default, if this machine allows it to namespaces,
// else the one that every namespace may have.
func congestionControl() string {
	allowed, err := (Netns{}).ReadSysctl("net/ipv4/tcp_allowed_congestion_control")
	if err == nil && slices.Contains(strings.Fields(allowed), "cubic") {
		return "cubic"
	}
	return "reno"
}

// removeNetns removes the name; the kernel removes the namespace when its last process is gone too. It is
// no error when there is none, or only the file was made.
func removeNetns(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// cgroupRoot finds where cgroup v2 is mounted: /sys/fs/cgroup, or a directory of it in hybrid mode.
func cgroupRoot() (string, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.FSType == "cgroup2" {
			return m.MountPoint, nil
		}
	}
	return "", errors.New("no cgroup2 is mounted: the lab keeps the processes of each node in a cgroup v2 of its own")
}

// removeCgroup ends every process in the cgroup and below with SIGKILL and removes the directories. It is
// no error when there is no such cgroup. Membership decides, so no process outside can be hit.
func removeCgroup(ctx context.Context, dir string) error {
	pids, err := cgroup.ProcessesBelow(dir)
	if err != nil {
		return fmt.Errorf("list processes of %s: %w", dir, err)
	}
	if slices.Contains(pids, os.Getpid()) {
		return fmt.Errorf("this command itself runs inside %s: leave the node or pod first", dir)
	}
	if err := cgroup.Kill(dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return cgroup.Remove(ctx, dir)
}

func mountBPF(dir string) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	err := unix.Mount("bpf", dir, "bpf", flags, "mode=0700")
	if errors.Is(err, unix.ENODEV) {
		return errors.New("this kernel has no BPF file system (CONFIG_BPF_SYSCALL)")
	}
	if err != nil {
		return fmt.Errorf("mount BPF file system at %s: %w", dir, err)
	}
	return nil
}

// unmountBelow unmounts everything below dir, the newest first.
func unmountBelow(dir string) error {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		if !strings.HasPrefix(m.MountPoint, dir+"/") {
			continue
		}
		if err := unix.Unmount(m.MountPoint, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.MountPoint, err))
		}
	}
	return errors.Join(errs...)
}
