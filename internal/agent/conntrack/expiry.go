// Package conntrack removes expired conntrack and NAT entries, and entries of deleted pods and backends.
package conntrack

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
)

// Bounds of the interval of expiry: the shortest while entries expire all the time, and the longest.
const (
	expireOften  = 5 * time.Second
	expireSeldom = 30 * time.Second
)

// Kernel are the operations of the datapath.
type Kernel struct {
	// Now is the datapath's clock.
	Now func() (time.Duration, error)
	// ExpireNAT and ExpireConntrack remove expired entries and return their number.
	ExpireNAT, ExpireConntrack func(now time.Duration) (int, error)
	// ForgetBackends removes NAT entries of backends, and DestroySockets the sockets connected to backends that served
	// UDP.
	ForgetBackends func(all, udp []netip.AddrPort) (int, error)
	DestroySockets func(udp []netip.AddrPort) (int, error)
	// ForgetPods removes the entries of addresses of pods. Remembered gives the addresses within ranges that have
	// entries.
	ForgetPods func([]netip.Addr) (int, error)
	Remembered func([]netip.Prefix) ([]netip.Addr, error)
}

// Expiry removes entries.
type Expiry struct {
	log    *slog.Logger
	beat   *loop.Beat
	kernel Kernel
	wake   loop.Signal
	// expired and expiredConntrack count removed NAT and conntrack entries, failures failed attempts, destroyed
	// sockets.
	expired, expiredConntrack, failures, destroyed atomic.Uint64
	left                                           leftPods

	mu sync.Mutex
	// gone are removed backends: true for backends that served UDP.
	gone map[netip.AddrPort]bool
}

// New makes an Expiry.
func New(kernel Kernel, beat *loop.Beat, log *slog.Logger) *Expiry {
	return &Expiry{log: log, beat: beat, kernel: kernel, wake: loop.NewSignal()}
}

// Status counts removed entries and sockets.
type Status struct{ Expired, ExpiredConntrack, Failures, Destroyed uint64 }

// Status counts what was removed so far.
func (x *Expiry) Status() Status {
	return Status{Expired: x.expired.Load(), ExpiredConntrack: x.expiredConntrack.Load(), Failures: x.failures.Load(), Destroyed: x.destroyed.Load()}
}

// Run removes entries until ctx ends.
func (x *Expiry) Run(ctx context.Context) error {
	expire := &loop.Tick{Every: expireOften}
	expire.Do = func(time.Time) {
		expire.Every = nextExpiry(expire.Every, x.expire())
		expire.In(expire.Every)
	}
	l := loop.Loop{
		Beat: x.beat, Wake: x.wake,
		Work: func() {
			x.forgetBackends(x.takeGone())
			x.forgetPods()
		},
		Ticks: []*loop.Tick{expire},
	}
	return l.Run(ctx)
}

// BackendsGone hands over removed backends, sorted, and those of them that served UDP. It does not block.
func (x *Expiry) BackendsGone(all, udp []netip.AddrPort) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone == nil {
		x.gone = map[netip.AddrPort]bool{}
	}
	for _, b := range all {
		_, isUDP := slices.BinarySearchFunc(udp, b, netip.AddrPort.Compare)
		x.gone[b] = x.gone[b] || isUDP
	}
	x.wake.Set()
}

// takeGone gives the backends removed since the last call, and those of them that served UDP.
func (x *Expiry) takeGone() (all, udp []netip.AddrPort) {
	x.mu.Lock()
	defer x.mu.Unlock()
	all = slices.SortedFunc(maps.Keys(x.gone), netip.AddrPort.Compare)
	for _, b := range all {
		if x.gone[b] {
			udp = append(udp, b)
		}
	}
	x.gone = nil
	return all, udp
}

// expire removes expired entries and counts them.
func (x *Expiry) expire() (removed int) {
	now, err := x.kernel.Now()
	if err == nil {
		removed, err = x.kernel.ExpireNAT(now)
		x.expired.Add(uint64(removed))
		conntrack, errConntrack := x.kernel.ExpireConntrack(now)
		x.expiredConntrack.Add(uint64(conntrack))
		removed, err = removed+conntrack, errors.Join(err, errConntrack)
	}
	if err != nil {
		x.failures.Add(1)
		x.log.Error("remove expired NAT and conntrack entries", "error", err)
	}
	return removed
}

// nextExpiry adapts the interval. Each pass reads whole tables, which pays off while entries expire all the time.
func nextExpiry(last time.Duration, removed int) time.Duration {
	const worthwhile = 100 // entries
	if removed >= worthwhile {
		return expireOften
	}
	return min(2*last, expireSeldom)
}

// forgetBackends ends connections to removed backends. A UDP client gets no notification, and keeps its socket for
// hours. Sockets are searched only if a backend served UDP.
func (x *Expiry) forgetBackends(gone, udp []netip.AddrPort) {
	forgotten, err := x.kernel.ForgetBackends(gone, udp)
	x.expired.Add(uint64(forgotten))
	if err != nil {
		x.failures.Add(1)
		x.log.Error("remove NAT entries of removed backends", "error", err)
	}
	destroyed := 0
	if len(udp) > 0 {
		destroyed, err = x.kernel.DestroySockets(udp)
		x.destroyed.Add(uint64(destroyed))
		if err != nil {
			x.log.Error("destroy sockets of removed backends", "error", err)
		}
	}
	x.log.Debug("backends removed", "backends", len(gone), "connections", forgotten, "sockets", destroyed)
}
