package conntrack

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/loop"
)

// However many backends are removed at once, all of them are forgotten.
func TestNoGoneBackendIsLost(t *testing.T) {
	x := New(Kernel{}, &loop.Beat{}, slog.New(slog.DiscardHandler))
	for port := range uint16(500) {
		at := []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("10.1.1.2"), port)}
		if port%2 == 0 {
			x.BackendsGone(at, at)
		}
		x.BackendsGone(at, nil)
	}
	<-x.wake
	if got, udp := x.takeGone(); len(got) != 500 || len(udp) != 250 {
		t.Errorf("%d remain of 500, %d of the 250 that served UDP", len(got), len(udp))
	}
	if got, udp := x.takeGone(); len(got)+len(udp) != 0 {
		t.Errorf("%v are reported twice", got)
	}
}

// Sockets of a backend that served TCP only are not searched.
func TestGoneBackendsOfTCPHaveNoSockets(t *testing.T) {
	var forgotten, destroyed []netip.AddrPort
	x := New(Kernel{
		ForgetBackends: func(all, _ []netip.AddrPort) (int, error) { forgotten = append(forgotten, all...); return 0, nil },
		DestroySockets: func(udp []netip.AddrPort) (int, error) { destroyed = append(destroyed, udp...); return len(udp), nil },
	}, &loop.Beat{}, slog.New(slog.DiscardHandler))
	tcp, udp := netip.MustParseAddrPort("10.1.1.2:80"), netip.MustParseAddrPort("10.1.1.2:53")
	x.forgetBackends([]netip.AddrPort{tcp}, nil)
	if len(forgotten) != 1 || destroyed != nil {
		t.Errorf("removed are %v, and sockets of %v searched", forgotten, destroyed)
	}
	x.forgetBackends([]netip.AddrPort{udp, tcp}, []netip.AddrPort{udp})
	if !slices.Equal(destroyed, []netip.AddrPort{udp}) || x.destroyed.Load() != 1 {
		t.Errorf("sockets of %v are searched, want %s", destroyed, udp)
	}
}
