package device

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// oldTable is the nftables table, of family inet, in which earlier versions had the rules that masqueraded.
const oldTable = "beeline"

// RemoveOldRules deletes the masquerading rules of earlier versions in the network namespace of the calling thread, and tells whether there
// were any. A kernel without nftables has none.
func RemoveOldRules() (removed bool, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open netfilter socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, deleteTable(oldTable), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, fmt.Errorf("ask for the removal of table %s: %w", oldTable, err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return false, fmt.Errorf("remove table %s: %w", oldTable, err)
	}
	if n < unix.SizeofNlMsghdr+4 {
		return false, fmt.Errorf("remove table %s: answer of %d bytes", oldTable, n)
	}
	code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:]))
	switch refused := unix.Errno(-code); {
	case code == 0:
		return true, nil
	case refused == unix.ENOENT, refused == unix.EOPNOTSUPP, refused == unix.EINVAL:
		return false, nil // there is no such table, or there are none at all
	default:
		return false, fmt.Errorf("remove table %s: %w", oldTable, refused)
	}
}

// deleteTable is a batch of one request (include/uapi/linux/netfilter/nfnetlink.h): nftables takes changes in batches only.
func deleteTable(name string) []byte {
	message := func(kind, flags, resource uint16, family byte, attributes []byte) []byte {
		m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+4+len(attributes)))
		m = binary.NativeEndian.AppendUint16(m, kind)
		m = binary.NativeEndian.AppendUint16(m, flags)
		m = append(m, make([]byte, 8)...) // sequence number and port
		m = append(m, family, unix.NFNETLINK_V0)
		m = binary.BigEndian.AppendUint16(m, resource)
		return append(m, attributes...)
	}
	const begin, end = unix.NFNL_MSG_BATCH_BEGIN, unix.NFNL_MSG_BATCH_END
	attribute := binary.NativeEndian.AppendUint16(nil, uint16(4+len(name)+1))
	attribute = binary.NativeEndian.AppendUint16(attribute, unix.NFTA_TABLE_NAME)
	attribute = append(append(attribute, name...), 0)
	for len(attribute)%4 != 0 {
		attribute = append(attribute, 0)
	}
	const subsystem = unix.NFNL_SUBSYS_NFTABLES
	batch := message(begin, unix.NLM_F_REQUEST, subsystem, unix.AF_UNSPEC, nil)
	batch = append(batch, message(subsystem<<8|unix.NFT_MSG_DELTABLE, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 0, unix.NFPROTO_INET, attribute)...)
	return append(batch, message(end, unix.NLM_F_REQUEST, subsystem, unix.AF_UNSPEC, nil)...)
}
