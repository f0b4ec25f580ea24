package encrypted

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Traffic are the bytes that the device with this name has received and sent, of packets before encryption, since it was made; 0
// without a device. Unlike the sums of peers they do not fall when a peer goes.
func Traffic(device string) (received, sent uint64, err error) {
	link, err := netlink.LinkByName(device)
	switch {
	case rtnl.IsNotFound(err):
		return 0, 0, nil
	case err != nil:
		return 0, 0, fmt.Errorf("find device %s: %w", device, err)
	}
	statistics := link.Attrs().Statistics
	if statistics == nil {
		return 0, 0, nil
	}
	return statistics.RxBytes, statistics.TxBytes, nil
}
