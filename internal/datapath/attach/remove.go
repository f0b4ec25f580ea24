package attach

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

// Remove detaches the programs from all devices and sockets and removes the pins below root, without loading
// anything. It returns what it removed. Pods lose their network. It is no error if there is nothing to remove.
func Remove(root string) (removed []string, err error) {
	tcx, err := kernel.HaveTCX()
	if err != nil {
		return nil, fmt.Errorf("probe tcx: %w", err)
	}
	return New(&load.Objects{Config: config.Datapath{Root: root}, Tcx: tcx}).Remove()
}

// Remove detaches the programs from all devices and sockets, removes all pins, and returns what it removed. The
// tables must not be used after it.
func (t *Attacher) Remove() (removed []string, err error) {
	root := t.objects.Config.Root
	attached, err := t.Attachments()
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	errs := []error{err}
	for _, a := range attached {
		if err := t.detachNow(a); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, fmt.Sprintf("program %s of device %s", a.Program, a.Device))
	}
	sockets, err := detachSockets(root)
	errs = append(errs, err)
	for _, name := range sockets {
		removed = append(removed, fmt.Sprintf("program %s of sockets", name))
	}
	maps, err := os.ReadDir(load.MapDir(root))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("list maps: %w", err))
	}
	for _, m := range maps {
		if name, _, _ := strings.Cut(m.Name(), load.LayoutSeparator); name != load.CommittedName && name != load.CommittedNew {
			removed = append(removed, "map "+name)
		}
	}
	errs = append(errs, os.RemoveAll(load.MapDir(root)), os.RemoveAll(load.LinkDir(root)), os.RemoveAll(load.MarksPath(root)))
	// The directory stays if it is a mount point or has other pins.
	if err := os.Remove(root); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}
