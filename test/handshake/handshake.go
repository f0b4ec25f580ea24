// Package handshake tells of TCP connections whether they came about without a loss: to tests, whose deadlines are too long to show it.
package handshake

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// SentOnce fails for a connection whose first packet or its answer was lost: it came about by another one, a second later. It has to be
// asked before data is sent (tcp(7), TCP_INFO).
func SentOnce(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err = errors.Join(failed, err); err == nil && info.Total_retrans > 0 {
		err = fmt.Errorf("SYN was sent %d times", info.Total_retrans+1)
	}
	return err
}
