// Package kernelprobe finds out what this kernel has.
package kernelprobe

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device"
)

// VXLAN makes a VXLAN device in a temporary network namespace. The error is nil if this kernel has them. The caller's
// namespace and thread do not change. The kernel loads the module that this needs.
func VXLAN() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe"
	return inNewNetns(func() error { return netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: 4789}) })
}

// Netkit makes a netkit pair likewise, and calls attach in that namespace with the index of its primary device.
func Netkit(attach func(primary int) error) error {
	const name = "probe"
	host := netlink.NewLinkAttrs()
	host.Name = name
	return inNewNetns(func() error {
		if err := netlink.LinkAdd(device.Netkit.Pair(host, netlink.LinkAttrs{Name: "peer"})); err != nil {
			return fmt.Errorf("create a pair of netkit devices: %w", err)
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find netkit device %s: %w", name, err)
		}
		return attach(link.Attrs().Index)
	})
}

// inNewNetns runs a function on a thread in a new network namespace, which ends with it.
func inNewNetns(do func() error) error {
	result := make(chan error)
	go func() { result <- moved(do) }()
	return <-result
}

// moved moves a thread into a new namespace and back. A thread that cannot return stays locked, and the runtime ends
// it with its goroutine.
func moved(do func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("create a network namespace to probe in: %w", err)
	}
	err = do()
	if netns.Set(home) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
