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

// ErrInUse says that another agent of this node is listening on the socket.
var ErrInUse = errors.New("another agent listens")

// Listen opens the unix socket of the API with mode 0660, and creates its directory with mode 0755. It replaces the
// stale socket of a killed agent, but not one that is in use (ErrInUse), nor a file that is no socket. Closing the
// listener removes the socket, unless a successor has replaced it.
func Listen(socket string) (_ net.Listener, err error) {
	dir := filepath.Dir(socket)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory of socket: %w", err)
	}
	if err := checkFree(socket); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}

	// Bound to a temporary name and renamed: no client can connect before the mode is set, and the stale socket is
	// replaced atomically. The name is short because a socket's path has at most 107 bytes.
	temporary := filepath.Join(dir, fmt.Sprintf(".s%d", os.Getpid()))
	_ = os.Remove(temporary)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	l.SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			_ = l.Close()
			_ = os.Remove(temporary)
		}
	}()
	if err := os.Chmod(temporary, 0o660); err != nil {
		return nil, fmt.Errorf("set mode of socket: %w", err)
	}
	if err := os.Rename(temporary, socket); err != nil {
		return nil, fmt.Errorf("put socket in place: %w", err)
	}
	own, err := os.Lstat(socket)
	if err != nil {
		return nil, fmt.Errorf("look at socket: %w", err)
	}
	return &listener{UnixListener: l, socket: socket, own: own}, nil
}

// checkFree is nil if the path does not exist, or is a socket without a listener.
func checkFree(socket string) error {
	info, err := os.Lstat(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("the path is a file that is no socket")
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
