package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// detachLink detaches a program from its device or cgroup and removes the pin of its link. The program does not run
// after it returns. Removing only the pin would let the kernel detach later, in the background.
func detachLink(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return errors.Join(fmt.Errorf("open pinned link: %w", err), os.Remove(pin))
	}
	defer l.Close()
	err = l.Detach() // succeeds if the device or the cgroup is gone
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = nil // such a link goes with its pin
	}
	return errors.Join(err, os.Remove(pin))
}
