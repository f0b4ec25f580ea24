package ippools

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// reportInterval is how often the status of a pool changes at most: each change costs the API server a write.
const reportInterval = 5 * time.Second

// report writes the status of pools that has changed until ctx ends. For each pool one of the ready nodes does.
func (p *Pools) report(ctx context.Context) {
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	written := map[string]cluster.IPPoolStatus{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if p.allocator.Synced() && p.known() == nil {
			p.reportChanged(ctx, written)
		}
	}
}

// reportChanged writes each status that differs from what this node has written last.
func (p *Pools) reportChanged(ctx context.Context, written map[string]cluster.IPPoolStatus) {
	_, set := p.current()
	there := map[string]bool{}
	for _, pool := range set.Pools {
		if !p.elected(pool.Key()) {
			continue
		}
		there[pool.Name] = true
		now := p.status(pool)
		if last, known := written[pool.Name]; known && reflect.DeepEqual(last, now) {
			continue
		}
		if err := p.Server.WriteStatus(ctx, now); err != nil {
			p.Log.Warn("status of IPPool is not written", "pool", pool.Name, "error", err)
			continue
		}
		written[pool.Name] = now
	}
	for name := range written {
		if !there[name] {
			delete(written, name) // another node may write it meanwhile
		}
	}
}

// status gives the status of a pool.
func (p *Pools) status(pool *ippool.Pool) cluster.IPPoolStatus {
	s := cluster.IPPoolStatus{Name: pool.Name, UID: pool.UID, Invalid: pool.Invalid, Overlaps: strings.Join(pool.Overlaps, "; ")}
	for _, f := range pool.Families() {
		counts := p.counts(pool, f)
		if f == ippool.IPv4 {
			s.IPv4 = &counts
		} else {
			s.IPv6 = &counts
		}
	}
	return s
}
