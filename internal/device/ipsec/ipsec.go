// Package ipsec manages the XFRM interface, its states and policies: ESP tunnels (RFC 4303) to the other nodes of the
// cluster. It never logs a state, which has keys.
package ipsec

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/encrypted"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Name is the name of the XFRM interface.
const Name = "beeline-ipsec"

// InterfaceID ties the states and policies to the device (XFRMA_IF_ID). States and policies with another one are not
// Beeline's, and no packet of another device meets these. The number is the ASCII text "beel".
const InterfaceID = 0x6265656c

// MTU returns the largest packet, in bytes, that fits into one packet of an uplink with this MTU, between nodes with addresses
// of this one's family: the outer IP header, 8 of ESP's header, 8 of the initialization vector, 16 of the integrity check value,
// and a trailer of 2, padded to 4 (RFC 4303, 2; RFC 4106, 3 and 6).
func MTU(uplink int, to netip.Addr) int {
	header := 40
	if to.Is4() {
		header = 20
	}
	return (uplink-header-8-8-16)&^3 - 2
}

// Tunnel is a security association: it encrypts packets of one direction between two nodes, with inner addresses of one
// family.
type Tunnel struct {
	// SPI tells apart the tunnels to one address. It is at least 256 (RFC 4303, 2.1).
	SPI uint32
	// Key is that of AES-GCM, 16 or 32 bytes, followed by 4 bytes of salt (RFC 4106, 8.1). It must never be used for two
	// tunnels.
	Key []byte
	// IPv6 says of which family inner addresses are.
	IPv6 bool
	// Made says that the kernel has it: it is not made anew with the same key.
	Made bool
}

// Peer is another node.
type Peer struct {
	// Name is that of its Node.
	Name string
	// Local and Remote are the outer addresses.
	Local, Remote netip.Addr
	// In decrypts what it sends. Out encrypts what is sent to it, with those tunnels that Use has.
	In, Out []Tunnel
	// Use are the SPIs of the tunnels in Out that packets to Prefixes take, one of each family.
	Use map[bool]uint32
	// Prefixes are what is sent to the node. No other peer has any of them.
	Prefixes []netip.Prefix
}

// Spec is the desired state of the device.
type Spec struct {
	// MTU of the device in bytes.
	MTU int
	// Addresses are IPv4 addresses of the node: see encrypted.SetUp.
	Addresses []netip.Addr
	Peers     []Peer
	// Partial says that further peers may exist, which are kept.
	Partial bool
}

// Errors of Sync; the error that wraps them has the details.
var (
	ErrUnsupported = errors.New("this kernel has no IPsec (CONFIG_XFRM_USER, CONFIG_XFRM_INTERFACE, CONFIG_INET_ESP, CONFIG_INET6_ESP, CONFIG_CRYPTO_GCM)")
	ErrConflict    = errors.New("another program uses the name or the interface ID of the XFRM interface")
	// ErrTaken says that an SPI is in use: the caller has to choose other keys.
	ErrTaken = errors.New("another IPsec tunnel to this node has the same SPI")
	// ErrGone says that a tunnel that was made is not there: the caller has to choose other keys.
	ErrGone = errors.New("somebody has deleted an IPsec tunnel of this node")
)

// Synced is what Sync has done.
type Synced struct {
	// Index is the device's. Made says that the device is new.
	Index int
	Made  bool
	// Refused says why the kernel has refused a tunnel to a peer, by its name. Nothing is sent to it, and none of its missing
	// tunnels was made.
	Refused map[string]error
}

// Sync makes the device, its states and its policies equal to spec, by differences to present: what does not change goes on. Before the
// device is set up, Sync calls attach with its index, so that no packet arrives before the program is attached. States come
// first and go last: no policy lacks its state.
func Sync(present States, spec Spec, attach func(index int) error) (done Synced, err error) {
	if !supported() {
		return Synced{}, ErrUnsupported
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = Name, spec.MTU
	link, made, err := encrypted.FindOrAdd(&netlink.Xfrmi{LinkAttrs: attrs, Ifid: InterfaceID})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return Synced{}, ErrUnsupported
	case errors.Is(err, unix.EEXIST):
		return Synced{}, fmt.Errorf("%w: a device has the interface ID %#x", ErrConflict, InterfaceID)
	case err != nil:
		return Synced{}, err
	case !isOurs(link):
		return Synced{}, fmt.Errorf("%w: %s is a device of type %s that Beeline has not made; delete or rename it", ErrConflict, Name, link.Type())
	}
	done = Synced{Index: link.Attrs().Index, Made: made}
	missing, stale, err := differences(spec, present)
	if err != nil {
		return Synced{}, err
	}
	if done.Refused, err = addAll(missing, addState, deleteStates); err != nil {
		return Synced{}, err
	}
	if err := syncPolicies(spec.without(done.Refused)); err != nil {
		return Synced{}, err
	}
	if err := deleteStates(stale); err != nil {
		return Synced{}, err
	}
	if err := encrypted.SetUp(link, spec.MTU, spec.Addresses, attach); err != nil {
		return Synced{}, err
	}
	// The device is up: its routes exist from now on.
	return done, route.SyncThrough(done.Index, Name)
}

// without is the specification without some peers.
func (s Spec) without(names map[string]error) Spec {
	s.Peers = slices.DeleteFunc(slices.Clone(s.Peers), func(p Peer) bool { return names[p.Name] != nil })
	return s
}

// Remove deletes the states and policies, and then the device, and reports whether there was one.
func Remove() (removed bool, err error) {
	link, err := netlink.LinkByName(Name)
	switch {
	case rtnl.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find device %s: %w", Name, err)
	case !isOurs(link):
		return false, nil
	}
	if err := RemoveStates(); err != nil {
		return false, err
	}
	if err := netlink.LinkDel(link); err != nil && !rtnl.IsNotFound(err) {
		return false, fmt.Errorf("delete device %s: %w", Name, err)
	}
	return true, nil
}

// RemoveStates deletes Beeline's states, policies and routes, also when somebody has deleted the device. On a kernel without
// IPsec there are none.
func RemoveStates() error {
	if !supported() {
		return nil
	}
	present, err := ourStates()
	return errors.Join(err, syncPolicies(Spec{}), deleteStates(present), route.SyncThrough(0, Name))
}

// supported reports whether the kernel takes requests for states and policies.
func supported() bool {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM)
	if err != nil {
		return false
	}
	return unix.Close(s) == nil
}

func isOurs(link netlink.Link) bool {
	x, ok := link.(*netlink.Xfrmi)
	return ok && x.Ifid == InterfaceID
}
