package adversary

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// xdpSocket sends by AF_XDP in copy mode, which every device supports: the kernel passes each frame to the driver,
// without qdiscs and taps.
type xdpSocket struct {
	fd        int
	memory    []byte
	transmit  xdpRing
	completed xdpRing
	next      uint32 // frame, counted from 0
}

// xdpRing is one of a socket's rings (struct xdp_ring in the kernel).
type xdpRing struct {
	producer, consumer *uint32
	entries            unsafe.Pointer
}

const (
	xdpChunk   = 4096 // bytes of the umem per frame
	xdpEntries = 8    // of each ring
)

// openXDP binds to queue 0 of a device. The test's cleanup closes it.
func openXDP(t *testing.T, netns testbed.Netns, device string) *xdpSocket {
	t.Helper()
	s := &xdpSocket{}
	if err := netns.Do(func() error { return s.open(device) }); err != nil {
		t.Fatalf("AF_XDP at %s: %v", device, err)
	}
	t.Cleanup(func() { _ = unix.Close(s.fd) }) // the kernel unmaps with the process
	return s
}

func (s *xdpSocket) open(device string) error {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	if s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	s.memory, err = unix.Mmap(-1, 0, xdpChunk*xdpEntries, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	memory := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&s.memory[0]))), Len: uint64(len(s.memory)), Size: xdpChunk}
	if err := s.option(unix.XDP_UMEM_REG, unsafe.Pointer(&memory), unsafe.Sizeof(memory)); err != nil {
		return fmt.Errorf("register memory: %w", err)
	}
	for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_TX_RING} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_XDP, ring, xdpEntries); err != nil {
			return fmt.Errorf("size of ring %d: %w", ring, err)
		}
	}
	if err := s.mapRings(); err != nil {
		return err
	}
	return unix.Bind(s.fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(link.Index)})
}

func (s *xdpSocket) option(name int, value unsafe.Pointer, size uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s.fd), unix.SOL_XDP, uintptr(name), uintptr(value), size, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (s *xdpSocket) mapRings() error {
	var at unix.XDPMmapOffsets
	size := uint32(unsafe.Sizeof(at))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_XDP, unix.XDP_MMAP_OFFSETS,
		uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return fmt.Errorf("read offsets of rings: %w", errno)
	}
	var err, err2 error
	s.transmit, err = s.mapRing(unix.XDP_PGOFF_TX_RING, at.Tx, unsafe.Sizeof(unix.XDPDesc{}))
	s.completed, err2 = s.mapRing(unix.XDP_UMEM_PGOFF_COMPLETION_RING, at.Cr, unsafe.Sizeof(uint64(0)))
	return errors.Join(err, err2)
}

func (s *xdpSocket) mapRing(offset int64, at unix.XDPRingOffset, entry uintptr) (xdpRing, error) {
	memory, err := unix.Mmap(s.fd, offset, int(at.Desc)+int(entry)*xdpEntries, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return xdpRing{}, fmt.Errorf("map ring: %w", err)
	}
	base := unsafe.Pointer(&memory[0])
	return xdpRing{(*uint32)(unsafe.Add(base, at.Producer)), (*uint32)(unsafe.Add(base, at.Consumer)), unsafe.Add(base, at.Desc)}, nil
}

func (s *xdpSocket) send(frame []byte) error {
	if len(frame) > xdpChunk {
		return fmt.Errorf("frame of %d bytes does not fit into %d", len(frame), xdpChunk)
	}
	slot := s.next % xdpEntries
	copy(s.memory[slot*xdpChunk:], frame)
	*(*unix.XDPDesc)(unsafe.Add(s.transmit.entries, uintptr(slot)*unsafe.Sizeof(unix.XDPDesc{}))) =
		unix.XDPDesc{Addr: uint64(slot * xdpChunk), Len: uint32(len(frame))}
	s.next++
	atomic.StoreUint32(s.transmit.producer, s.next)
	err := unix.Sendto(s.fd, nil, unix.MSG_DONTWAIT, nil)
	atomic.StoreUint32(s.completed.consumer, atomic.LoadUint32(s.completed.producer))
	return netlab.Sent(err)
}
