package ipclaim

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

const (
	// collectInterval is how often all claims are looked at, beside what changes show.
	collectInterval = time.Minute
	// retryInterval is the wait after an error of the store.
	retryInterval = 2 * time.Second
)

// Run follows the store, releases what Release names, and collects garbage, until ctx ends.
func (a *Allocator) Run(ctx context.Context) error {
	var follower sync.WaitGroup
	defer follower.Wait()
	follower.Go(func() { a.Store.Follow(ctx, a) })
	select {
	case <-ctx.Done():
		return nil
	case <-a.synced:
	}
	tick := time.NewTicker(collectInterval)
	defer tick.Stop()
	all := true
	for {
		wait := time.Duration(1<<63 - 1)
		if err := a.Pass(ctx, all); err != nil && ctx.Err() == nil {
			a.Log.Warn("release of addresses is retried", "error", err)
			wait = retryInterval
		}
		all = false
		select {
		case <-ctx.Done():
			return nil
		case <-a.due:
		case <-tick.C:
			all = true
		case <-time.After(wait):
		}
	}
}

// Pass does once what Run does after a change, and with all what it does once a minute.
func (a *Allocator) Pass(ctx context.Context, all bool) error {
	errs := []error{a.release(ctx), a.heal(ctx)}
	if all {
		errs = append(errs, a.collectOwn(ctx), a.collectOthers(ctx))
	}
	return errors.Join(errs...)
}

func addressOf(claim cluster.Key) netip.Addr {
	addr, _ := cluster.ClaimAddress(claim.Name) // the zero address is before all others
	return addr
}
