package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf/link"
)

// renewLink updates the pinned link of an earlier agent. If there is none, or if update returns false, it attaches a
// new link and pins that.
func renewLink(pin string, update func(old link.Link) (updated bool, err error), attach func() (link.Link, error)) error {
	old, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		defer old.Close()
		if updated, err := update(old); updated || err != nil {
			return err
		}
		if err := old.Unpin(); err != nil {
			return fmt.Errorf("unpin defunct link: %w", err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("open pinned link: %w", err)
	}
	l, err := attach()
	if err != nil {
		return err
	}
	defer l.Close() // the pin holds it
	if err := l.Pin(pin); err != nil {
		return fmt.Errorf("pin link: %w", err)
	}
	return nil
}
