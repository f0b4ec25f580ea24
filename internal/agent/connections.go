package agent

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// The time between two looks for connections that are over: the least, which a table in motion has, and the most.
const (
	expireOften  = 5 * time.Second
	expireSeldom = 30 * time.Second
)

// connections keeps the tables of connections from holding what is over.
type connections struct {
	// expired counts entries that were removed, failures the attempts that went wrong, destroyed sockets of backends that are gone.
	expired, failures, destroyed atomic.Uint64
	// expiredSessions counts those of sessions.
	expiredSessions atomic.Uint64
	// gone are backends that serve no more, about whom wake, with room for one, has been told: true for those that served UDP.
	mu   sync.Mutex
	gone map[netip.AddrPort]bool
	wake loop.Signal
	left leftPods
	// forget removes the connections to backends that are gone, and destroy the sockets of those that served UDP.
	forget  func(all, udp []netip.AddrPort) (int, error)
	destroy func(udp []netip.AddrPort) (int, error)
}

// backendsGone takes note of backends that serve no more, sorted. It does not block.
func (a *Agent) backendsGone(all, udp []netip.AddrPort) {
	c := &a.connections
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone = map[netip.AddrPort]bool{}
	}
	for _, b := range all {
		_, isUDP := slices.BinarySearchFunc(udp, b, netip.AddrPort.Compare)
		c.gone[b] = c.gone[b] || isUDP
	}
	c.wake.Set()
}

// takeGone gives the backends that have gone since the last call, and those of them that served UDP.
func (c *connections) takeGone() (all, udp []netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = slices.SortedFunc(maps.Keys(c.gone), netip.AddrPort.Compare)
	for _, b := range all {
		if c.gone[b] {
			udp = append(udp, b)
		}
	}
	c.gone = nil
	return all, udp
}

// expireConnections removes connections that are over, and those of backends that are gone, until ctx ends.
func (a *Agent) expireConnections(ctx context.Context) error {
	expire := &loop.Tick{Every: expireOften}
	expire.Do = func(time.Time) {
		expire.Every = nextExpiry(expire.Every, a.expireOnce())
		expire.In(expire.Every)
	}
	l := loop.Loop{
		Beat: a.beats.Add("the loop of connections"), Wake: a.connections.wake,
		Work: func() {
			a.forgetBackends(a.connections.takeGone())
			a.forgetPods()
		},
		Ticks: []*loop.Tick{expire},
	}
	return l.Run(ctx)
}

// expireOnce removes what is over and gives how many entries that were.
func (a *Agent) expireOnce() (removed int) {
	now, err := table.Monotonic()
	if err == nil {
		removed, err = a.datapath.NAT.Expire(now)
		a.connections.expired.Add(uint64(removed))
		sessions, errSessions := a.flows.Expire(now)
		a.connections.expiredSessions.Add(uint64(sessions))
		removed, err = removed+sessions, errors.Join(err, errSessions)
	}
	if err != nil {
		a.connections.failures.Add(1)
		a.log.Error("connections that are over stay for now", "error", err)
	}
	return removed
}

// nextExpiry adapts the time between two looks: each reads whole tables, which pays while something ends all the time.
func nextExpiry(last time.Duration, removed int) time.Duration {
	const worthwhile = 100 // entries
	if removed >= worthwhile {
		return expireOften
	}
	return min(2*last, expireSeldom)
}

// forgetBackends ends what goes on to backends that are gone: UDP has nobody who would say so, and clients keep their sockets for hours. Of those
// that served no UDP there is nothing among sockets.
func (a *Agent) forgetBackends(gone, udp []netip.AddrPort) {
	forgotten, err := a.connections.forget(gone, udp)
	a.connections.expired.Add(uint64(forgotten))
	if err != nil {
		a.connections.failures.Add(1)
		a.log.Error("connections of backends that are gone stay until they time out", "error", err)
	}
	destroyed := 0
	if len(udp) > 0 {
		destroyed, err = a.connections.destroy(udp)
		a.connections.destroyed.Add(uint64(destroyed))
		if err != nil {
			a.log.Error("sockets that are connected to backends that are gone", "error", err)
		}
	}
	a.log.Debug("backends are gone", "backends", len(gone), "connections", forgotten, "sockets", destroyed)
}

// namespaces are the network namespaces of the pods here.
func (a *Agent) namespaces() (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.endpoints {
		if e.Netns != "" {
			all = append(all, e.Netns)
		}
	}
	return all
}
