package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// detachLink takes a program off its device or cgroup and removes the pin of its link; no packet and no socket meets the program
// afterwards. Of a link that only loses its pin the kernel lets go later, in the background.
func detachLink(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return errors.Join(fmt.Errorf("open pinned link: %w", err), os.Remove(pin))
	}
	defer l.Close()
	err = l.Detach() // also of a device or a cgroup that is gone
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = nil // such a link ends with its pin
	}
	return errors.Join(err, os.Remove(pin))
}
