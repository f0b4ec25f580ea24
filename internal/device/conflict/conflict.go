// Package conflict finds out whether another host on a link uses an address (RFC 5227 for IPv4, RFC 4862 section 5.4 for IPv6), and
// announces to the link that this node has one.
package conflict

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Probes of one address, and the time after each to wait for replies. RFC 5227 waits seconds, for links that have just come up and for
// hosts that sleep; the uplink of a node has been up for long. The kernel's timers add up to a tenth.
const (
	probes   = 3
	interval = 90 * time.Millisecond
)

// Device is the device whose link is asked.
type Device struct {
	Index int
	// MAC is that of the frames that are sent. Frames from it are not those of another host.
	MAC net.HardwareAddr
}

// InUseError says that another host has the address, or is about to take it.
type InUseError struct {
	Address netip.Addr
	MAC     net.HardwareAddr
}

// Error implements error.
func (e *InUseError) Error() string {
	return fmt.Sprintf("%s is in use by the host with MAC %s", e.Address, e.MAC)
}

// Probe sends probes for an address and waits for replies: about 300 ms if there is none. It returns *InUseError as soon as another host claims
// the address. The node must not have the address yet.
func Probe(ctx context.Context, d Device, a netip.Addr) error {
	s, err := open(d, a)
	if err != nil {
		return fmt.Errorf("probe %s: %w", a, err)
	}
	defer s.close()
	for range probes {
		if err := s.send(probeFrame(d.MAC, a)); err != nil {
			return fmt.Errorf("probe %s: %w", a, err)
		}
		for end := time.Now().Add(interval); ; {
			frame, err := s.receive(ctx, end)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				return fmt.Errorf("probe %s: %w", a, err)
			}
			if mac := claimant(frame, a); mac != nil && mac.String() != d.MAC.String() {
				return &InUseError{a, mac}
			}
		}
	}
	return nil
}

// Announce tells the hosts of the link that frames for an address go to this device's MAC. A host that knows another MAC replaces it.
func Announce(d Device, a netip.Addr) error {
	s, err := open(d, a)
	if err != nil {
		return fmt.Errorf("announce %s: %w", a, err)
	}
	defer s.close()
	if err := s.send(announcementFrame(d.MAC, a)); err != nil {
		return fmt.Errorf("announce %s: %w", a, err)
	}
	return nil
}

func probeFrame(own net.HardwareAddr, a netip.Addr) []byte {
	if a.Is4() {
		return arpFrame(own, netip.IPv4Unspecified(), a)
	}
	return solicitation(own, a)
}

func announcementFrame(own net.HardwareAddr, a netip.Addr) []byte {
	if a.Is4() {
		return arpFrame(own, a, a)
	}
	return advertisement(own, a)
}

// claimant is the MAC of the host that claims the address with this frame; nil if it is about something else.
func claimant(frame []byte, a netip.Addr) net.HardwareAddr {
	if a.Is4() {
		return arpClaimant(frame, a)
	}
	return neighbourClaimant(frame, a)
}
