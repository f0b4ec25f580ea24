package samenode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Attach makes new sockets meet.
func (s *SameNode) Attach() error {
	dir := Dir(s.datapath.Config.Root)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory for pins: %w", err)
	}
	err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: s.maps.Sockets.FD(), Program: s.programs.Send, Attach: ebpf.AttachSkMsgVerdict})
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", bpf.SameNodeProgSameNodeSend, bpf.SameNodeMapSnSockets, err)
	}
	if err := pin(s.Active, filepath.Join(dir, pinActive)); err != nil {
		return err
	}
	if err := s.Active.Put(uint32(0), s.number); err != nil {
		return fmt.Errorf("write map %s: %w", bpf.SameNodeMapSnActive, err)
	}
	if err := s.attachOpen(filepath.Join(dir, pinOpen)); err != nil {
		return fmt.Errorf("attach %s to cgroup %s: %w", bpf.SameNodeProgSameNodeOpen, s.cgroup, err)
	}
	// The pin keeps same_node_send attached without the agent. That of the earlier map goes last.
	return pin(s.maps.Sockets, filepath.Join(dir, pinSockets))
}

// attachOpen replaces the program in the pinned link of an earlier agent at once: a socket that both programs see is
// added by the earlier one, and uses packets. Without such a link at this cgroup it makes one.
func (s *SameNode) attachOpen(path string) error {
	old, err := link.LoadPinnedLink(path, nil)
	if err == nil {
		defer old.Close()
		if s.isAtCgroup(old) {
			err := old.Update(s.programs.Open)
			if err == nil {
				return nil
			}
			s.log.Info("link cannot be updated and is replaced", "cgroup", s.cgroup, "program", bpf.SameNodeProgSameNodeOpen, "reason", err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("open pinned link: %w", err)
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: s.cgroup, Attach: ebpf.AttachCGroupSockOps, Program: s.programs.Open})
	if err != nil {
		return err
	}
	defer l.Close() // the pin holds it
	return pin(l, path)
}

// isAtCgroup reports whether a link is attached to the cgroup. The inode number of its directory is its ID.
func (s *SameNode) isAtCgroup(l link.Link) bool {
	var at unix.Stat_t
	if err := unix.Stat(s.cgroup, &at); err != nil {
		return false
	}
	info, err := l.Info()
	if err != nil {
		return false
	}
	cgroup := info.Cgroup()
	return cgroup != nil && cgroup.CgroupId == at.Ino
}

// pin replaces what is pinned at path.
func pin(what interface{ Pin(string) error }, path string) error {
	if m, ok := what.(*ebpf.Map); ok && m.IsPinned() {
		return nil
	}
	fresh := path + "-new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove incomplete pin: %w", err)
	}
	if err := what.Pin(fresh); err != nil {
		return fmt.Errorf("pin %s: %w", filepath.Base(path), err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("rename pin: %w", err)
	}
	return nil
}

// Attached reports whether new sockets of the node meet; if not, Attach attaches the programs again.
func (s *SameNode) Attached() (bool, error) {
	l, err := link.LoadPinnedLink(filepath.Join(Dir(s.datapath.Config.Root), pinOpen), nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open pinned link %s: %w", pinOpen, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return false, fmt.Errorf("read link %s: %w", pinOpen, err)
	}
	own, err := s.programs.Open.Info()
	if err != nil {
		return false, fmt.Errorf("describe program %s: %w", bpf.SameNodeProgSameNodeOpen, err)
	}
	id, ok := own.ID()
	return ok && info.Program == id && s.isAtCgroup(l), nil
}

// Remove sends the sockets of an earlier agent back to packets, detaches its program and removes the pins below root.
// It returns what it removed. It is no error if there is nothing to remove.
func Remove(root string) (removed []string, err error) {
	dir := Dir(root)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var errs []error
	active, err := openActive(root)
	if active != nil {
		err = active.Put(uint32(0), uint64(0))
		errs = append(errs, active.Close())
		removed = append(removed, "map "+bpf.SameNodeMapSnActive)
	}
	errs = append(errs, err)
	l, err := link.LoadPinnedLink(filepath.Join(dir, pinOpen), nil)
	if err == nil {
		err = errors.Join(l.Detach(), l.Close())
		removed = append(removed, "program "+bpf.SameNodeProgSameNodeOpen+" of sockets")
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return removed, fmt.Errorf("remove same-node sockets: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, pinSockets)); err == nil {
		removed = append(removed, "map "+bpf.SameNodeMapSnSockets)
	}
	if err := os.RemoveAll(dir); err != nil {
		return removed, fmt.Errorf("remove pins of same-node sockets: %w", err)
	}
	return removed, nil
}
