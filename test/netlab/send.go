package netlab

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// Sent is the error of a send by a packet socket or AF_XDP, unless it says that the datapath dropped the frame: from_pod runs while a pod
// sends by a netkit device, and the kernel reports its drop to the sender, as ENOBUFS or, of AF_XDP, EBUSY. A veth pair drops without a
// word.
func Sent(err error) error {
	if testenv.DeviceKind() == "netkit" && (errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EBUSY)) {
		return nil
	}
	return err
}
