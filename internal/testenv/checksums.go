package testenv

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FinishChecksums has the stack finish the checksums of what a device of the calling thread's namespace sends (ethtool -K DEVICE tx off).
func FinishChecksums(name string) error {
	const setTxChecksum = 0x17 // ETHTOOL_STXCSUM
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ command, on uint32 }{command: setTxChecksum}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("turn off checksums of %s: %w", name, errno)
	}
	return nil
}
