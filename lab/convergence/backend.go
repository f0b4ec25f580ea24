package convergence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Listen accepts connections to an address in a namespace and sends one byte, who, until the listener is closed.
func Listen(ctx context.Context, netns testbed.Netns, at netip.AddrPort, who byte) (net.Listener, error) {
	var listener net.Listener
	err := netns.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", at.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen as backend %d: %w", who, err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // such as too many open files: silence would count as denied
				time.Sleep(time.Millisecond)
				continue
			}
			_, _ = conn.Write([]byte{who}) // the client may be gone
			conn.Close()
		}
	}()
	return listener, nil
}
