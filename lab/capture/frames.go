package capture

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
)

const (
	// frameMax exceeds any frame, including merged ones of segmentation offload.
	frameMax = 1 << 17
	// queue is how many bytes wait to be looked at.
	queue = 64 << 20
	// pollMicroseconds bounds how long the reader takes to see that it has to stop.
	pollMicroseconds = 20_000
)

// Frames calls see for each frame that a device in the namespace receives, or sends after its programs, until stop. A
// frame is valid during the call, and has the segments of an offload in one. stop sees what has come up to then, and
// returns an error if frames were missed.
func Frames(in testbed.Netns, device string, see func(frame []byte, sent bool)) (stop func() error, err error) {
	fd, err := open(in, device, func(fd int) error {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queue)
		if err == nil {
			err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: pollMicroseconds})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("capture frames of %s: %w", device, err)
	}
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- read(fd, end, see) }()
	return func() error {
		close(end)
		err := <-ended
		if err == nil {
			err = missed(fd)
		}
		if err != nil {
			err = fmt.Errorf("capture frames of %s: %w", device, err)
		}
		return errors.Join(err, unix.Close(fd))
	}, nil
}

// open makes a socket of a device that gets frames once it is prepared.
func open(in testbed.Netns, device string, prepare func(fd int) error) (fd int, err error) {
	index := 0
	err = in.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(device)
		if err == nil {
			index = link.Attrs().Index
		}
		return err
	})
	if err != nil {
		return -1, err
	}
	err = in.Do(func() (err error) {
		// Protocol 0: nothing arrives before the socket is bound to the device.
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, err
	}
	if err = prepare(fd); err == nil {
		all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)) // in network byte order
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// read reads frames until it has to stop and none is left.
func read(fd int, end <-chan struct{}, see func(frame []byte, sent bool)) error {
	frame := make([]byte, frameMax)
	for {
		size, from, err := unix.Recvfrom(fd, frame, unix.MSG_TRUNC)
		link, ok := from.(*unix.SockaddrLinklayer)
		switch {
		case err == nil && size > len(frame):
			return fmt.Errorf("a frame has %d bytes, and %d at most were expected", size, len(frame))
		case err == nil && ok:
			see(frame[:size], link.Pkttype == unix.PACKET_OUTGOING)
		case err == nil, errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENETDOWN): // the device may go down and up
			return err
		default:
			select {
			case <-end:
				return nil
			default:
			}
		}
	}
}

// missed says how many frames the socket was too small for.
func missed(fd int) error {
	stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return fmt.Errorf("read what was missed: %w", err)
	}
	if stats.Drops > 0 {
		return fmt.Errorf("%d of %d frames were missed", stats.Drops, stats.Packets)
	}
	return nil
}
