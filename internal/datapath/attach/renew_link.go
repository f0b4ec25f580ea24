package attach

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/link"
)

// releaseTime is how long the kernel may take to release a link whose last pin is gone. Until then it refuses to attach
// the same program again (EEXIST).
const releaseTime = 200 * time.Millisecond

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
	for end := time.Now().Add(releaseTime); errors.Is(err, os.ErrExist) && time.Now().Before(end); l, err = attach() {
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		return err
	}
	defer l.Close() // the pin holds it
	if err := l.Pin(pin); err != nil {
		return fmt.Errorf("pin link: %w", err)
	}
	return nil
}
