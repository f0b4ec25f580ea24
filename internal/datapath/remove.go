package datapath

import (
	"errors"
	"fmt"
	"os"
)

// Remove takes the programs off all devices and removes the pins below root, without loading anything, and tells what
// it removed. Traffic of pods stops. Nothing there is no error.
func Remove(root string) (removed []string, err error) {
	tcx, err := haveTCX()
	if err != nil {
		return nil, fmt.Errorf("probe tcx: %w", err)
	}
	d := &Datapath{config: Config{Root: root}, tcx: tcx}
	attached, err := d.Attachments()
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	errs := []error{err}
	for _, a := range attached {
		if err := d.detach(a); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, fmt.Sprintf("program %s of device %s", a.Program, a.Device))
	}
	maps, err := os.ReadDir(mapDir(root))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("list maps: %w", err))
	}
	for _, m := range maps {
		removed = append(removed, "map "+m.Name())
	}
	return removed, errors.Join(append(errs, os.RemoveAll(mapDir(root)), os.RemoveAll(root))...)
}
