package sock

import (
	"fmt"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// NetnsCookie returns the cookie of the calling thread's network namespace (Linux 5.14): the number that BPF programs see. It is
// unique until the machine restarts.
func NetnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("get the cookie of the network namespace: %w", err)
	}
	return cookie, nil
}

// NetnsCookieAt returns the cookie of the network namespace at a path.
func NetnsCookieAt(path string) (cookie uint64, err error) {
	err = ns.WithNetNSPath(path, func(ns.NetNS) error {
		cookie, err = NetnsCookie()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return cookie, nil
}
