// Package rtnl holds what all packages below internal/device share of rtnetlink: Beeline's protocol number, dumps, attributes,
// and conversions between net and net/netip.
//
// The packages below internal/device are the only ones that speak netlink. They hold no state: they return what the kernel has at
// the moment of the call. Their functions act in the network namespace of the calling thread unless a comment says otherwise. A
// goroutine that has entered another namespace must be locked to its thread (ns.Do of containernetworking/plugins does that).
package rtnl

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Protocol marks Beeline's routes, rules (rtm_protocol) and neighbours (NDA_PROTOCOL); iproute2 prints it as "proto 190". The number
// is free in iproute2's rt_protos and in linux/rtnetlink.h, where 186 to 189 and 192 belong to routing daemons.
const Protocol = 0xBE

// ErrMalformed reports a netlink message that is shorter than its own lengths say.
var ErrMalformed = errors.New("malformed netlink message")

// IsNotFound reports whether err means that a device does not exist.
func IsNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound) || errors.Is(err, unix.ENODEV)
}

// Dump repeats a dump that the kernel interrupted because its tables changed (NLM_F_DUMP_INTR), at most eight times.
func Dump[T any](dump func() ([]T, error)) ([]T, error) {
	const tries = 8
	var err error
	for range tries {
		var list []T
		if list, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return nil, err
}

// Prefix converts an address with its mask. ok is false for nil and for a mask that is not contiguous or of the other family.
func Prefix(ipNet *net.IPNet) (prefix netip.Prefix, ok bool) {
	if ipNet == nil {
		return netip.Prefix{}, false
	}
	addr, ok := Addr(ipNet.IP)
	ones, bits := ipNet.Mask.Size()
	if !ok || bits != addr.BitLen() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, ones), true
}

// Addr converts an address in network byte order; an IPv4-mapped one becomes IPv4.
func Addr(ip net.IP) (addr netip.Addr, ok bool) {
	addr, ok = netip.AddrFromSlice(ip)
	return addr.Unmap(), ok
}

// IPNet is the reverse of Prefix.
func IPNet(prefix netip.Prefix) *net.IPNet {
	addr := prefix.Addr()
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(prefix.Bits(), addr.BitLen())}
}

// Family returns AF_INET or AF_INET6.
func Family(addr netip.Addr) int {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// EachAttribute calls visit for each attribute of a message (struct rtattr) without NLA_F_NESTED in its kind. It stops at the first
// error of visit, and returns ErrMalformed for an attribute that exceeds the message.
func EachAttribute(attributes []byte, visit func(kind uint16, value []byte) error) error {
	for len(attributes) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(attributes))
		if length < unix.SizeofRtAttr || length > len(attributes) {
			return ErrMalformed
		}
		if err := visit(binary.NativeEndian.Uint16(attributes[2:])&^unix.NLA_F_NESTED, attributes[unix.SizeofRtAttr:length]); err != nil {
			return err
		}
		attributes = attributes[min(len(attributes), Align(length)):]
	}
	return nil
}

// Align rounds a length up to RTA_ALIGNTO (4 bytes).
func Align(length int) int { return (length + unix.RTA_ALIGNTO - 1) &^ (unix.RTA_ALIGNTO - 1) }

// ReadAddress reads an attribute that is an IPv4 or IPv6 address.
func ReadAddress(value []byte, to *netip.Addr) error {
	addr, ok := Addr(value)
	if !ok {
		return ErrMalformed
	}
	*to = addr
	return nil
}

// ReadNumber reads an attribute that is a 32-bit number in the machine's byte order.
func ReadNumber(value []byte, to *uint32) error {
	if len(value) < 4 {
		return ErrMalformed
	}
	*to = binary.NativeEndian.Uint32(value)
	return nil
}
