// Package capture looks at the frames of devices, for bytes and addresses that must not be in them.
//
// What the devices at both ends of a wire send is all that the wire carries. What a device receives is no such proof:
// packets that the kernel has decrypted by a policy of IPsec pass the device a second time, in plaintext.
package capture

import (
	"bytes"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// For is what a capture looks for.
type For struct {
	// Marker are bytes of a payload.
	Marker []byte
	// Ranges are those of addresses.
	Ranges []netip.Prefix
}

// Flow is a kind of packets.
type Flow struct {
	// Protocol is that of IP.
	Protocol byte
	// Port is the destination of UDP packets, else 0.
	Port uint16
}

// Seen is what a capture has found.
type Seen struct {
	// Frames is how many frames there were, Marked how many of them contain the marker, and Inside how many have an outer IP
	// header with an address of the ranges.
	Frames, Marked, Inside int
	// Bytes are those of the frames of each flow.
	Bytes map[Flow]int
}

// Start captures the frames that a device sends, until stop, which returns an error if frames were missed.
func Start(in testbed.Netns, device string, wanted For) (stop func() (Seen, error), err error) {
	seen := Seen{Bytes: map[Flow]int{}}
	end, err := Copies(in, device, func(frame []byte, sent bool) {
		if sent {
			seen.count(frame, wanted)
		}
	})
	if err != nil {
		return nil, err
	}
	return func() (Seen, error) {
		err := end()
		return seen, err
	}, nil
}

func (s *Seen) count(frame []byte, wanted For) {
	s.Frames++
	if len(wanted.Marker) > 0 && bytes.Contains(frame, wanted.Marker) {
		s.Marked++
	}
	h := HeaderOf(frame)
	if slices.ContainsFunc(wanted.Ranges, func(r netip.Prefix) bool { return r.Contains(h.Source) || r.Contains(h.Destination) }) {
		s.Inside++
	}
	flow := Flow{Protocol: h.Protocol}
	if h.Protocol == unix.IPPROTO_UDP {
		flow.Port = h.Port
	}
	s.Bytes[flow] += len(frame)
}
