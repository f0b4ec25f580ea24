package load

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// requireBPFFS checks that dir, which need not exist yet, is on a BPF file system: pins exist only there, and the
// kernel's error would not say so.
func requireBPFFS(dir string) error {
	for there := dir; ; there = filepath.Dir(there) {
		var fs unix.Statfs_t
		err := unix.Statfs(there, &fs)
		switch {
		case errors.Is(err, unix.ENOENT) && there != filepath.Dir(there):
			continue
		case err != nil:
			return fmt.Errorf("find file system of %s: %w", dir, err)
		case fs.Type != unix.BPF_FS_MAGIC:
			return fmt.Errorf("%s is not on a BPF file system: mount one, as with `mount -t bpf bpf /sys/fs/bpf`", dir)
		}
		return nil
	}
}
