// Package capture shows tests the frames of devices. Wire looks for plaintext of pods on a wire whose nodes encrypt.
package capture

import (
	"errors"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// frameMax exceeds any frame, including merged ones of segmentation offload.
const frameMax = 1 << 17

// Start calls see for each frame that a device in the namespace receives, or sends after its programs, until stop. A frame is
// valid during the call.
func Start(netns testbed.Netns, device string, see func(frame []byte, sent bool)) (stop func(), err error) {
	fd := -1
	err = netns.Do(func() error {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		const buffer = 16 << 20 // bytes
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer); err != nil {
			return err
		}
		const poll = 100_000 // µs; bounds how long the reader takes to see that it has to stop
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: poll}); err != nil {
			return err
		}
		const all = 3 << 8 // ETH_P_ALL in network order
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
	})
	if err != nil {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
		return nil, err
	}
	end := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { read(fd, end, see) })
	return func() {
		close(end)
		reader.Wait()
		_ = unix.Close(fd)
	}, nil
}

func read(fd int, end <-chan struct{}, see func(frame []byte, sent bool)) {
	buffer := make([]byte, frameMax)
	for {
		select {
		case <-end:
			return
		default:
		}
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		if link, ok := from.(*unix.SockaddrLinklayer); err == nil && ok {
			see(buffer[:n], link.Pkttype == unix.PACKET_OUTGOING)
		}
	}
}
