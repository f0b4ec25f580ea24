package kernel

import (
	"fmt"
	"io"

	"github.com/cilium/ebpf/link"
)

// RunIterator runs an iterator over the sockets of the calling thread's network namespace, and returns how many bytes its
// program wrote: one for each socket that it destroyed.
func RunIterator(l *link.Iter) (int, error) {
	sockets, err := l.Open()
	if err != nil {
		return 0, fmt.Errorf("open iterator: %w", err)
	}
	defer sockets.Close()
	n, err := io.Copy(io.Discard, sockets)
	if err != nil {
		return int(n), fmt.Errorf("run iterator: %w", err)
	}
	return int(n), nil
}
