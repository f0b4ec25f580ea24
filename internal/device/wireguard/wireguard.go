// Package wireguard manages the WireGuard device and its peers: the other nodes of the cluster.
package wireguard

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/beeline-cni/beeline/internal/device/encrypted"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Name is the name of the WireGuard device.
const Name = "beeline-wg"

// Overhead returns how many bytes encryption adds to a packet between nodes with addresses of this one's family: the IP
// header, 8 of UDP, 16 of WireGuard's header, 16 of the authentication tag (WireGuard whitepaper, 5.4.6).
func Overhead(to netip.Addr) int {
	if to.Is4() {
		return 20 + 8 + 16 + 16
	}
	return 40 + 8 + 16 + 16
}

// Key is a private or a public key.
type Key = wgtypes.Key

// Peer is another node.
type Peer struct {
	// PublicKey identifies it.
	PublicKey Key
	// Endpoint is where encrypted packets to it are sent.
	Endpoint netip.AddrPort
	// AllowedIPs are what it may send from, and what is sent to it. No other peer has any of them.
	AllowedIPs []netip.Prefix
}

// Spec is the desired state of the device.
type Spec struct {
	PrivateKey Key
	// Port is the UDP port that all nodes use.
	Port int
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
	ErrUnsupported = errors.New("this kernel has no WireGuard devices (CONFIG_WIREGUARD)")
	ErrConflict    = errors.New("another program uses the name or the port of the WireGuard device")
)

// Sync makes the device and its peers equal to spec, by differences: what does not change goes on. It returns the
// device's index and whether it is new. Before the device is set up, Sync calls attach with its index, so that no packet
// arrives before the programs are attached. A device that cannot be set up stays, down.
func Sync(spec Spec, attach func(index int) error) (index int, made bool, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = Name, spec.MTU
	link, made, err := encrypted.FindOrAdd(&netlink.Wireguard{LinkAttrs: attrs})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, false, ErrUnsupported
	case err != nil:
		return 0, false, err
	case link.Type() != "wireguard":
		return 0, false, fmt.Errorf("%w: %s is a device of type %s; delete or rename it", ErrConflict, Name, link.Type())
	}
	if err := configure(spec); err != nil {
		return 0, made, err
	}
	err = encrypted.SetUp(link, spec.MTU, spec.Addresses, attach)
	if errors.Is(err, unix.EADDRINUSE) {
		err = portTaken(spec.Port)
	}
	return link.Attrs().Index, made, err
}

// Remove deletes the device and reports whether there was one. It keeps a device of another type.
func Remove() (removed bool, err error) { return rtnl.Remove(Name, "wireguard") }

// configure writes what differs of keys, port and peers.
func configure(spec Spec) error {
	client, err := wgctrl.New()
	if err != nil {
		return fmt.Errorf("open WireGuard's netlink family: %w", err)
	}
	defer client.Close()
	present, err := client.Device(Name)
	if err != nil {
		return fmt.Errorf("read device %s: %w", Name, err)
	}
	change, needed := difference(present, spec)
	if !needed {
		return nil
	}
	if err := client.ConfigureDevice(Name, change); err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return portTaken(spec.Port)
		}
		return fmt.Errorf("configure device %s: %w", Name, err)
	}
	return nil
}

func portTaken(port int) error {
	return fmt.Errorf("%w: UDP port %d is in use; stop that program, or give all nodes another --wireguard-port", ErrConflict, port)
}
