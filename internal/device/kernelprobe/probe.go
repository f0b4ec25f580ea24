// Package kernelprobe finds out what this kernel has.
package kernelprobe

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// VXLAN makes a VXLAN device in a temporary network namespace. The error is nil if this kernel has them. The caller's
// namespace and thread do not change. The kernel loads the module that this needs.
func VXLAN() error {
	result := make(chan error)
	go func() { result <- probeInNewNetns() }()
	return <-result
}

// probeInNewNetns moves a thread into a new namespace and back. A thread that cannot return stays locked, and the
// runtime ends it with its goroutine.
func probeInNewNetns() error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("create a network namespace to probe in: %w", err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe"
	err = netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: 4789})
	if netns.Set(home) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
