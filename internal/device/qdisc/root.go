package qdisc

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rootQdisc is the qdisc at the root of a device.
type rootQdisc struct {
	kind   string
	handle uint32
	rate   uint64 // of tbf, in bytes/s
}

// rootOf gives the qdisc at the root of a device; nil if it has none. It asks for this one only: a pod can have any number of others in
// its namespace.
func rootOf(index int) (*rootQdisc, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_ECHO|unix.NLM_F_ACK) // without ECHO, the kernel only notifies others
	request.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: netlink.HANDLE_ROOT})
	replies, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	if gone(err) || err == nil && len(replies) == 0 { // none is of a device that is down
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the qdisc of device %d: %w", index, err)
	}
	q, err := parseRoot(replies[0])
	if err != nil {
		return nil, fmt.Errorf("parse the qdisc of device %d: %w", index, err)
	}
	return q, nil
}

func parseRoot(message []byte) (*rootQdisc, error) {
	if len(message) < nl.SizeofTcMsg {
		return nil, errors.New("the message is too short")
	}
	header := nl.DeserializeTcMsg(message)
	attrs, err := nl.ParseRouteAttr(message[header.Len():])
	if err != nil {
		return nil, err
	}
	q := &rootQdisc{handle: header.Handle}
	for _, attr := range attrs {
		switch attr.Attr.Type {
		case nl.TCA_KIND:
			q.kind = strings.TrimRight(string(attr.Value), "\x00")
		case nl.TCA_OPTIONS:
			if q.kind == "tbf" {
				q.rate, err = tbfRate(attr.Value)
			}
		}
	}
	return q, err
}

func tbfRate(options []byte) (rate uint64, err error) {
	attrs, err := nl.ParseRouteAttr(options)
	for _, attr := range attrs {
		switch {
		case attr.Attr.Type == nl.TCA_TBF_PARMS && len(attr.Value) >= nl.SizeofTcTbfQopt && rate == 0:
			rate = uint64(nl.DeserializeTcTbfQopt(attr.Value).Rate.Rate)
		case attr.Attr.Type == nl.TCA_TBF_RATE64 && len(attr.Value) >= 8: // more than the 32 bits of the other one
			rate = nl.NativeEndian().Uint64(attr.Value)
		}
	}
	return rate, err
}
