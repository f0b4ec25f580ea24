package instructions

import (
	"syscall"
	"unsafe"
)

func rawTransfer(call uintptr, conn int, buffer *[1]byte) (n uintptr, errno syscall.Errno) {
	n, _, errno = syscall.RawSyscall(call, uintptr(conn), uintptr(unsafe.Pointer(buffer)), 1)
	return n, errno
}
