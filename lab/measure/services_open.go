package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// open brings up the baseline once and every other network once for each number of Services. All stay up for all
// rounds, so that samples with few and with many Services are minutes apart for nobody. One that cannot be brought up is
// listed with the reason.
func (b *servicesBench) open(ctx context.Context) error {
	if b.plan.Baseline {
		node := network.Node{}
		if _, err := b.openOne(ctx, nil, 1); err != nil {
			return fmt.Errorf("%s: %w", node.Name(), err)
		}
	}
	for _, proxy := range b.plan.Proxies {
		if why := proxy.Unsupported(); why != "" {
			b.progress.Note("%s: %s", proxy.Name(), why)
			b.run.Networks = append(b.run.Networks, result.Network{Name: proxy.Name(), Description: proxy.Description(), Unsupported: why})
			continue
		}
		for _, count := range b.plan.levels() {
			if _, err := b.openOne(ctx, proxy, count); err != nil {
				if ctx.Err() != nil {
					return err
				}
				b.progress.Note("%s does not come up with %d Services: %v", proxy.Name(), count, err)
				if count == 1 {
					b.run.Networks = append(b.run.Networks, result.Network{
						Name: proxy.Name(), Description: proxy.Description(), Unsupported: "does not come up: " + err.Error(),
					})
					break
				}
			}
		}
	}
	if len(b.bench.testbeds) == 0 {
		return fmt.Errorf("%w: no network came up", ErrNothing)
	}
	return nil
}

// openOne brings a network up with so many Services; the first of its testbeds is the one that is described.
func (b *servicesBench) openOne(ctx context.Context, proxy network.Proxy, count int) (*serviceTestbed, error) {
	name, backends := stats.Baseline, 0
	if proxy != nil {
		name, backends = proxy.Name(), b.plan.backendsBeside(proxy)
	}
	b.progress.Step("bringing up %s, number of Services: %d", name, count)
	began := time.Now()
	l, err := openServiceTestbed(ctx, proxy, count, backends, b.plan)
	if err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	b.progress.Advance(min(time.Since(began), bringUpMost))
	if b.testbeds[name] == nil {
		b.testbeds[name] = map[int]*serviceTestbed{}
		b.run.Networks = append(b.run.Networks, l.record(ctx))
	}
	b.testbeds[name][count] = l
	b.bench.testbeds = append(b.bench.testbeds, l.Testbed)
	return l, nil
}

// backendsBeside is how many backends each Service has that is only there to be many.
func (p ServicesPlan) backendsBeside(proxy network.Proxy) int {
	if isKubeProxy(proxy) {
		return p.KubeProxyBackends
	}
	return p.Backends
}

func isKubeProxy(proxy network.Proxy) bool {
	_, ok := proxy.(network.KubeProxy)
	return ok
}

func (b *servicesBench) close() error {
	var errs []error
	for name, testbeds := range b.testbeds {
		for count, l := range testbeds {
			b.progress.Status("taking down %s, number of Services: %d", name, count)
			errs = append(errs, l.close())
			b.progress.Advance(takeDown)
		}
	}
	b.progress.Clear()
	return errors.Join(errs...)
}

func sorted(list []int) []int {
	slices.Sort(list)
	return slices.Compact(list)
}
