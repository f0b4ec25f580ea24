package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

var socketAttachTypes = map[string]ebpf.AttachType{
	bpf.ProgConnect4: ebpf.AttachCGroupInet4Connect, bpf.ProgConnect6: ebpf.AttachCGroupInet6Connect,
	bpf.ProgGetpeername4: ebpf.AttachCgroupInet4GetPeername, bpf.ProgGetpeername6: ebpf.AttachCgroupInet6GetPeername,
	bpf.ProgSendmsg4: ebpf.AttachCGroupUDP4Sendmsg, bpf.ProgSendmsg6: ebpf.AttachCGroupUDP6Sendmsg,
	bpf.ProgRecvmsg4: ebpf.AttachCGroupUDP4Recvmsg, bpf.ProgRecvmsg6: ebpf.AttachCGroupUDP6Recvmsg,
	bpf.ProgSockRelease: ebpf.AttachCgroupInetSockRelease,
}

// AttachSockets attaches the Service programs to all sockets, open or new, of processes in config.Datapath.Cgroup and
// below. It replaces programs of an earlier agent one by one, so every connect is covered. If the configuration has
// no Services or no cgroup, it detaches the programs.
func (t *Attacher) AttachSockets() error {
	if !t.objects.Config.AtSockets() {
		_, err := detachSockets(t.objects.Config.Root)
		return err
	}
	id, err := cgroupID(t.objects.Config.Cgroup)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(load.SocketDir(t.objects.Config.Root), 0o700); err != nil {
		return fmt.Errorf("make directory for pins: %w", err)
	}
	for _, name := range bpf.SocketProgramNames {
		if err := t.attachSocket(name, id); err != nil {
			return fmt.Errorf("attach %s to cgroup %s: %w", name, t.objects.Config.Cgroup, err)
		}
	}
	return nil
}

// attachSocket updates the pinned link of an earlier agent, or makes one. A link to another cgroup, or to a removed
// one, keeps its pin until the new link is attached.
func (t *Attacher) attachSocket(name string, id uint64) error {
	pin := filepath.Join(load.SocketDir(t.objects.Config.Root), name)
	program, err := t.objects.Program(name)
	if err != nil {
		return err
	}
	old, err := link.LoadPinnedLink(pin, nil)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return fmt.Errorf("open pinned link: %w", err)
	default:
		defer old.Close()
		if linkIsAt(old, id) {
			err := old.Update(program)
			if err == nil {
				return nil
			}
			t.objects.Log.Info("link cannot be updated and is replaced", "cgroup", t.objects.Config.Cgroup, "program", name, "reason", err)
		}
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: t.objects.Config.Cgroup, Attach: socketAttachTypes[name], Program: program})
	if err != nil {
		return err
	}
	defer l.Close() // the pin holds it
	fresh := pin + load.PinSeparator + "new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove incomplete pin: %w", err)
	}
	if err := l.Pin(fresh); err != nil {
		return fmt.Errorf("pin link: %w", err)
	}
	if err := os.Rename(fresh, pin); err != nil {
		return fmt.Errorf("rename pin: %w", err)
	}
	return nil
}

// CheckSockets reports the first program that is missing at the cgroup. Without Services none is required.
func (t *Attacher) CheckSockets() error {
	if !t.objects.Config.AtSockets() {
		return nil
	}
	id, err := cgroupID(t.objects.Config.Cgroup)
	if err != nil {
		return err
	}
	for _, name := range bpf.SocketProgramNames {
		if err := checkLink(filepath.Join(load.SocketDir(t.objects.Config.Root), name), id); err != nil {
			return fmt.Errorf("%s is not attached to cgroup %s: %w", name, t.objects.Config.Cgroup, err)
		}
	}
	return nil
}

// SocketPrograms lists the programs that are attached to sockets, including those of earlier agents.
func (t *Attacher) SocketPrograms() ([]string, error) {
	return socketPins(t.objects.Config.Root)
}

func socketPins(root string) ([]string, error) {
	files, err := os.ReadDir(load.SocketDir(root))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list links of sockets: %w", err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names, nil
}

// detachSockets detaches the programs from all sockets and returns their names. It is no error if there are none.
func detachSockets(root string) (detached []string, err error) {
	names, err := socketPins(root)
	errs := []error{err}
	for _, name := range names {
		if err := detachLink(filepath.Join(load.SocketDir(root), name)); err != nil {
			errs = append(errs, fmt.Errorf("detach %s from sockets: %w", name, err))
			continue
		}
		detached = append(detached, name)
	}
	if err := os.Remove(load.SocketDir(root)); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("remove directory of links: %w", err))
	}
	return detached, errors.Join(errs...)
}

// cgroupID is the kernel's ID of a directory's cgroup: the inode number, on 64-bit machines.
func cgroupID(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("find file system of cgroup %s: %w", dir, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("%s is not on a cgroup2 file system: mount one, as with `mount -t cgroup2 cgroup2 /run/cgroup2`", dir)
	}
	var at unix.Stat_t
	if err := unix.Stat(dir, &at); err != nil {
		return 0, fmt.Errorf("stat cgroup %s: %w", dir, err)
	}
	return at.Ino, nil
}
