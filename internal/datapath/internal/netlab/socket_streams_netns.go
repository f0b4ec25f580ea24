package netlab

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Brief is a socket that the test closes itself.
func (r *Sockets) Brief(tb testing.TB, ipv6 bool, kind int) Socket {
	tb.Helper()
	family := unix.AF_INET
	if ipv6 {
		family = unix.AF_INET6
	}
	var s Socket
	r.In(tb, func() (err error) {
		s.Fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		return err
	})
	return s
}
