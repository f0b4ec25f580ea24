// Package file replaces files as a whole, copies them and keeps values in them as JSON. It locks directories against
// other processes.
package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/beeline-cni/beeline/lab/wait"
	"golang.org/x/sys/unix"
)

// Replace writes a file by rename: readers see the old or the new content, never a part.
func Replace(path string, data []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, data, 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// WriteJSON replaces a file by a value as JSON.
func WriteJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return Replace(path, append(data, '\n'))
}

// ReadJSON reads what WriteJSON has written.
func ReadJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Copy copies a file. A new one gets this mode.
func Copy(to, from string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return out.Close()
}

// LockDir locks a directory against other processes and goroutines until the returned function is called or the process
// ends. With create it makes a directory that is not there. The holder may remove the directory. LockDir waits as long as
// the context lasts and then returns its cause.
func LockDir(ctx context.Context, dir string, create bool) (unlock func(), err error) {
	for {
		f, err := tryLockDir(dir, create)
		if err != nil {
			return nil, err
		}
		if f != nil {
			return func() { f.Close() }, nil
		}
		if wait.For(ctx, 20*time.Millisecond) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// tryLockDir returns nil without an error when the lock is taken, or the directory was removed in between.
func tryLockDir(dir string, create bool) (*os.File, error) {
	var f *os.File
	var err error
	if create {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		f, err = os.Open(dir)
	}
	if create && os.IsNotExist(err) { // its holder took the directory above with it
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	held, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if now, err := os.Stat(dir); err != nil || !os.SameFile(held, now) {
		f.Close()
		return nil, nil
	}
	return f, nil
}
