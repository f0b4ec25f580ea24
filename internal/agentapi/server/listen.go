package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrInUse says that another agent of this node is listening on the socket.
var ErrInUse = errors.New("another agent listens")

// Listen opens the unix socket of the API with mode 0660, and creates its directory with mode 0755. It replaces the
// stale socket of a killed agent, but not one that is in use (ErrInUse), nor a file that is no socket. Closing the
// listener removes the socket. No other goroutine may create files meanwhile: the umask is the process's.
func Listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("make directory of socket: %w", err)
	}
	if err := removeStale(socket); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	defer syscall.Umask(syscall.Umask(0o117))
	return net.Listen("unix", socket)
}

// removeStale removes a socket without a listener. Any other file is an error.
func removeStale(socket string) error {
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
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(socket)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}
