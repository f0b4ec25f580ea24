package agent

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// The latest snapshot waits, and answers for the time since the first one that nobody has taken.
func TestHandOverLatest(t *testing.T) {
	h := handover{ready: loop.NewSignal()}
	first, last := time.Unix(100, 0), time.Unix(200, 0)
	h.put(&cluster.Snapshot{Since: first})
	nodes := []cluster.Node{{Name: "a"}}
	h.put(&cluster.Snapshot{Since: last, Nodes: nodes})
	<-h.ready
	if got := h.take(); got.Since != first || !cluster.Same(got.Nodes, nodes) {
		t.Errorf("got %+v", got)
	}
	if got := h.take(); got != nil {
		t.Errorf("taken twice: %+v", got)
	}
	h.put(&cluster.Snapshot{Since: last})
	<-h.ready
	if got := h.take(); got.Since != last {
		t.Errorf("got %+v", got)
	}
}

// However many go at once, all of them are forgotten.
func TestNoGoneBackendIsLost(t *testing.T) {
	a := &Agent{connections: connections{wake: loop.NewSignal()}}
	for port := range uint16(500) {
		at := []netip.AddrPort{netip.AddrPortFrom(addr("10.1.1.2"), port)}
		if port%2 == 0 {
			a.backendsGone(at, at)
		}
		a.backendsGone(at, nil)
	}
	<-a.connections.wake
	if got, udp := a.connections.takeGone(); len(got) != 500 || len(udp) != 250 {
		t.Errorf("%d are left of 500, %d of the 250 that served UDP", len(got), len(udp))
	}
	if got, udp := a.connections.takeGone(); len(got)+len(udp) != 0 {
		t.Errorf("%v are told of twice", got)
	}
}

// Nobody looks for sockets of a backend that served TCP alone.
func TestGoneBackendsOfTCPHaveNoSockets(t *testing.T) {
	var forgotten, destroyed []netip.AddrPort
	a := &Agent{log: slog.New(slog.DiscardHandler), connections: connections{
		wake:    loop.NewSignal(),
		forget:  func(all, _ []netip.AddrPort) (int, error) { forgotten = append(forgotten, all...); return 0, nil },
		destroy: func(udp []netip.AddrPort) (int, error) { destroyed = append(destroyed, udp...); return len(udp), nil },
	}}
	tcp, udp := netip.MustParseAddrPort("10.1.1.2:80"), netip.MustParseAddrPort("10.1.1.2:53")
	a.forgetBackends([]netip.AddrPort{tcp}, nil)
	if len(forgotten) != 1 || destroyed != nil {
		t.Errorf("forgotten are %v, and sockets of %v looked for", forgotten, destroyed)
	}
	a.forgetBackends([]netip.AddrPort{udp, tcp}, []netip.AddrPort{udp})
	if !slices.Equal(destroyed, []netip.AddrPort{udp}) || a.connections.destroyed.Load() != 1 {
		t.Errorf("sockets of %v are looked for, want %s", destroyed, udp)
	}
}
