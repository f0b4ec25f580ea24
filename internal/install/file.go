package install

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// unfinished is the prefix of files that are being written. Runtimes ignore such names.
const unfinished = ".beeline-unfinished-"

// stamp identifies a state of a file without reading it; its ctime cannot be set back.
type stamp unix.Stat_t

// stampOf does not follow a symbolic link: a link in place of a file is not that file.
func stampOf(name string) (s stamp, err error) {
	if err := unix.Lstat(name, (*unix.Stat_t)(&s)); err != nil {
		return s, &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	s.Atim = unix.Timespec{} // reading is no change
	return s, nil
}

// inPlace reports whether the existing file is the artifact.
func (a artifact) inPlace(there stamp) (bool, error) {
	if there.Mode != unix.S_IFREG|uint32(a.mode) {
		return false, nil
	}
	want, err := a.open()
	if err != nil {
		return false, err
	}
	defer want.Close()
	got, err := os.Open(a.to)
	if err != nil {
		return false, err
	}
	defer got.Close()
	return equal(want, got)
}

// equal compares two streams in blocks: programs have tens of megabytes, and pods wait meanwhile.
func equal(a, b io.Reader) (bool, error) {
	const block = 1 << 16
	left, right := make([]byte, block), make([]byte, block)
	for {
		n, errA := io.ReadFull(a, left)
		m, errB := io.ReadFull(b, right)
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if !bytes.Equal(left[:n], right[:m]) {
			return false, nil
		}
		if n < block {
			return true, nil
		}
	}
}

// write replaces the artifact by rename: readers see the old file or the new one, complete, also after a crash of the
// machine. A running plugin is not affected.
func (a artifact) write() (err error) {
	dir := filepath.Dir(a.to)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := removeUnfinished(dir); err != nil {
		return err
	}
	content, err := a.open()
	if err != nil {
		return err
	}
	defer content.Close()
	f, err := os.CreateTemp(dir, unfinished)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = io.Copy(f, content)
	if err := errors.Join(err, f.Chmod(a.mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), a.to)
}

// removeUnfinished removes what an installer left that was killed while writing.
func removeUnfinished(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, unfinished+"*"))
	if err != nil {
		return err
	}
	for _, name := range left {
		err = errors.Join(err, remove(name))
	}
	return err
}

// remove removes a file. A missing file is no error.
func remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
