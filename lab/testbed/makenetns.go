package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// loopback is the index of lo: the kernel makes it first in every namespace.
const loopback = 1

// makeNetns makes a named namespace as `ip netns add` does, with lo up and the sysctls that every namespace
// of a lab has.
func makeNetns(path string, o Options, congestion string) (err error) {
	if err := shareNetnsDir(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeNetns(path))
		}
	}()
	// WithNetNSPath brings the thread back to where it was, or lets it die.
	err = ns.WithNetNSPath("/proc/thread-self/ns/net", func(ns.NetNS) error {
		h, err := netns.NewNamed(filepath.Base(path))
		if err != nil {
			return err
		}
		return h.Close()
	})
	if errors.Is(err, unix.EINVAL) {
		return errors.New("this kernel has no network namespaces (CONFIG_NET_NS)")
	}
	if err != nil {
		return fmt.Errorf("make namespace %s: %w", path, err)
	}
	return Netns{Path: path}.Do(func() error {
		if err := writeSysctls(namespaceSysctls(o, congestion)); err != nil {
			return err
		}
		lo, err := netlink.LinkByIndex(loopback)
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("set lo up: %w", err)
		}
		return nil
	})
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

// shareNetnsDir makes /run/netns a shared mount point of its own, as `ip netns add` does on first use: a
// later one by iproute2 would cover the names made before. It stays after the last lab, as with iproute2.
func shareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(netnsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", netnsDir, err)
	}
	share := func() error { return unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err = unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("share mount %s: %w", netnsDir, err)
	}
	return nil
}
