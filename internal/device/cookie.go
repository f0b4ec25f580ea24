package device

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// NamespaceCookie is the number by which BPF programs know the network namespace of the calling thread (Linux 5.14).
// No other namespace gets it until the machine starts again.
func NamespaceCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("ask for the cookie of the network namespace: %w", err)
	}
	return cookie, nil
}
