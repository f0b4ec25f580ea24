package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// The ring of a socket (packet(7), PACKET_RX_RING): blocks, which the kernel fills with frames and hands over.
const (
	blockSize = 1 << 20 // bytes: more than any frame
	blocks    = 16
	slotSize  = 2048 // no frame is bound to it in version 3
	retire    = 10   // ms after which the kernel hands over a block that is not full
)

// Copies is as Frames, but sees the frames as they were when they passed: the queue of a socket refers to frames and does not
// copy them, and what the kernel decrypts in place after that is seen in plaintext. A frame comes some milliseconds later.
func Copies(in testbed.Netns, device string, see func(frame []byte, sent bool)) (stop func() error, err error) {
	var memory []byte
	fd, err := open(in, device, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
			return err
		}
		size := &unix.TpacketReq3{Block_size: blockSize, Block_nr: blocks, Frame_size: slotSize, Frame_nr: blocks * blockSize / slotSize, Retire_blk_tov: retire}
		err := unix.SetsockoptTpacketReq3(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, size)
		if err == nil {
			memory, err = unix.Mmap(fd, 0, blocks*blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("capture copies of frames of %s: %w", device, err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		readRing(fd, memory, end, see)
	}()
	return func() error {
		close(end)
		<-ended
		stats, err := unix.GetsockoptTpacketStatsV3(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err == nil && stats.Drops > 0 {
			err = fmt.Errorf("%d of %d frames were missed", stats.Drops, stats.Packets)
		}
		if err != nil {
			err = fmt.Errorf("capture copies of frames of %s: %w", device, err)
		}
		return errors.Join(err, unix.Munmap(memory), unix.Close(fd))
	}, nil
}

// statusAt is where a block has its status: after two numbers (struct tpacket_block_desc).
const statusAt = 8

// readRing reads blocks until it has to stop and none is left.
func readRing(fd int, memory []byte, end <-chan struct{}, see func(frame []byte, sent bool)) {
	for at := 0; ; at = (at + blockSize) % len(memory) {
		block := memory[at : at+blockSize]
		status := (*uint32)(unsafe.Pointer(&block[statusAt]))
		for atomic.LoadUint32(status)&unix.TP_STATUS_USER == 0 {
			select {
			case <-end:
				return
			default:
			}
			const wait = 100 // ms
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, wait)
		}
		readBlock(block, see)
		atomic.StoreUint32(status, unix.TP_STATUS_KERNEL)
	}
}

// readBlock reads the frames of a block: each has a header (struct tpacket3_hdr), and after that the address of a frame of
// this socket (struct sockaddr_ll).
func readBlock(block []byte, see func(frame []byte, sent bool)) {
	number := func(b []byte, at int) int { return int(binary.NativeEndian.Uint32(b[at:])) }
	const addressAt, kindAt = 48, 10
	next := block[number(block, statusAt+8):]
	for range number(block, statusAt+4) {
		length, start := number(next, 12), int(binary.NativeEndian.Uint16(next[24:]))
		see(next[start:start+length], next[addressAt+kindAt] == unix.PACKET_OUTGOING)
		next = next[number(next, 0):]
	}
}
