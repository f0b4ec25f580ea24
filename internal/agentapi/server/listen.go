package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// ErrInUse says that somebody answers on the socket already: another agent of this node is running.
var ErrInUse = errors.New("another agent listens")

// Listen opens the unix socket for the API with mode 0660, in a directory of mode 0755 that it makes if
// need be. A socket that a killed agent left behind is replaced; one on which somebody answers is not
// (ErrInUse), nor is a file that is no socket. Closing the listener removes the socket, unless a
// successor has put its own there meanwhile.
func Listen(socket string) (_ net.Listener, err error) {
	dir := filepath.Dir(socket)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory of socket: %w", err)
	}
	if err := checkFree(socket); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}

	// Bound beside and renamed into place: nobody can connect before the mode is set, and the stale
	// socket is replaced in one step. The name is short because a socket's path has 107 bytes at most.
	beside := filepath.Join(dir, fmt.Sprintf(".s%d", os.Getpid()))
	_ = os.Remove(beside)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: beside, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	l.SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			_ = l.Close()
			_ = os.Remove(beside)
		}
	}()
	if err := os.Chmod(beside, 0o660); err != nil {
		return nil, fmt.Errorf("set mode of socket: %w", err)
	}
	if err := os.Rename(beside, socket); err != nil {
		return nil, fmt.Errorf("put socket in place: %w", err)
	}
	own, err := os.Lstat(socket)
	if err != nil {
		return nil, fmt.Errorf("look at socket: %w", err)
	}
	return &listener{UnixListener: l, socket: socket, own: own}, nil
}

// checkFree is nil if there is nothing at the path, or a socket on which nobody listens.
func checkFree(socket string) error {
	info, err := os.Lstat(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("a file that is no socket is there")
	}
	conn, err := net.DialTimeout("unix", socket, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		return ErrInUse
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return nil
	default:
		return err
	}
}

type listener struct {
	*net.UnixListener
	socket string
	own    os.FileInfo
	once   sync.Once
}

// Close stops listening and removes the socket if it is still this listener's.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	l.once.Do(func() {
		if now, statErr := os.Lstat(l.socket); statErr == nil && os.SameFile(now, l.own) {
			err = errors.Join(err, os.Remove(l.socket))
		}
	})
	return err
}
