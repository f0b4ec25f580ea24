package kernelprobe

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The request is IPCTNL_MSG_CT_GET_STATS of include/uapi/linux/netfilter/nfnetlink_conntrack.h: the number of connections.
const (
	conntrackSubsystem = 1 // NFNL_SUBSYS_CTNETLINK of include/uapi/linux/netfilter/nfnetlink.h
	getConntrackStats  = 5
)

// LoadConntrack makes the kernel load its connection tracking if that is a module that is not loaded yet. A kernel without it is no
// error.
func LoadConntrack() error {
	request := nl.NewNetlinkRequest(conntrackSubsystem<<8|getConntrackStats, unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	_, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	for _, absent := range []error{nil, unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT} {
		if errors.Is(err, absent) {
			return nil
		}
	}
	return fmt.Errorf("load connection tracking: %w", err)
}
