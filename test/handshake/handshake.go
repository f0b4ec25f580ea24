// Package handshake checks that a TCP handshake lost no packet. The timeouts of tests are too long to show such a loss.
package handshake

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// SentOnce fails if the kernel retransmitted the SYN of a connection. Call it before sending data (tcp(7), TCP_INFO).
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
