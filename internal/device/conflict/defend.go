package conflict

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// defencesMax bounds the replies in a second: any host of the link may send probes.
const defencesMax = 100

// Defend replies to probes of other hosts for IPv4 addresses that the node has by proxy entries, until ctx ends. The kernel answers
// requests for them, and solicitations, but no ARP probes: a host that looks whether an address is free would take it (RFC 5227, 2.1.1).
// has reports whether the node answers for an address on the device.
func Defend(ctx context.Context, d Device, has func(netip.Addr) (bool, error)) error {
	fail := func(err error) error { return fmt.Errorf("answer probes on device %d: %w", d.Index, err) }
	s, err := openFiltered(d, unix.ETH_P_ARP, arpProbeFilter)
	if err != nil {
		return fail(err)
	}
	if err := unix.SetNonblock(s.fd, true); err != nil { // so that the runtime waits for frames, and no thread does
		s.close()
		return fail(err)
	}
	file := os.NewFile(uintptr(s.fd), "probes")
	defer file.Close()
	defer context.AfterFunc(ctx, func() { file.Close() })()

	limit, frame := rate.NewLimiter(defencesMax, defencesMax), make([]byte, 256)
	for {
		n, err := file.Read(frame)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENETDOWN):
			continue // it may come up again
		case err != nil:
			return fail(err)
		}
		host, a, ok := probeOf(frame[:n])
		if !ok || host.String() == d.MAC.String() || !limit.Allow() {
			continue
		}
		known, err := has(a)
		if err == nil && known {
			_, err = file.Write(arpDefence(d.MAC, host, a))
		}
		if err != nil && !errors.Is(err, unix.ENETDOWN) && !errors.Is(err, unix.ENOBUFS) {
			return fail(err)
		}
	}
}

// probeOf reads a probe.
func probeOf(frame []byte) (host net.HardwareAddr, a netip.Addr, ok bool) {
	if len(frame) < arpLength {
		return nil, a, false
	}
	a = netip.AddrFrom4([4]byte(frame[arpTarget:]))
	host = arpClaimant(frame, a)
	return host, a, host != nil && !a.IsUnspecified()
}
