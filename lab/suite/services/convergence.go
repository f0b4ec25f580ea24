package services

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	objects "github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/suite"
)

// changePause is from one change to the next. It is longer for kube-proxy, which waits a second between two times that
// it writes, so that no change waits for the one before.
const (
	changePause    = 100 * time.Millisecond
	kubeProxyPause = 1200 * time.Millisecond
)

// After times how long traffic takes to follow, network by network, among the largest number of Services.
func (s *Suite) After(ctx context.Context, b *round.Bench) error {
	for _, m := range s.Members {
		t := m.byServices[s.Most]
		if t == nil || t.proxy == nil || s.Changes == 0 {
			continue
		}
		if c, err := newChanges(ctx, t); err == nil {
			for _, kind := range []result.ServiceChange{result.ServiceCreated, result.BackendAdded} {
				if ctx.Err() != nil {
					break
				}
				b.Progress.Step("timing changes: %s, %s", m.Name(), kind)
				r := result.ServiceConvergence{Network: m.Name(), Change: kind, Services: t.count, Backends: t.backends}
				times, errs := convergence.Repeat(ctx, s.Changes, s.ChangesFor, c.pause, func() (time.Duration, error) { return c.one(ctx, kind) })
				r.Milliseconds = times[0]
				if errs[0] != nil {
					r.Error = errs[0].Error()
				}
				b.Result.Services.Convergence = append(b.Result.Services.Convergence, r)
			}
		} else {
			b.Progress.Note("changes of %s: %v", m.Name(), err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		b.Progress.Advance(s.changesTake())
	}
	return nil
}

// changes are those of one network.
type changes struct {
	*level
	backends []objects.Backend
	client   *convergence.Client
	made     int
	pause    time.Duration
}

// newChanges adds the backends, each of which answers with its number.
func newChanges(ctx context.Context, t *level) (c *changes, err error) {
	c = &changes{level: t, pause: changePause}
	if _, ok := t.proxy.(network.KubeProxy); ok {
		c.pause = kubeProxyPause
	}
	for i := range manyBackends {
		pod, err := t.addPod(ctx, 1, fmt.Sprintf("backend%d", i))
		if err != nil {
			return nil, err
		}
		at, err := t.Listen(ctx, pod, suite.EchoPort, byte(i))
		if err != nil {
			return nil, err
		}
		c.backends = append(c.backends, objects.Backend{Address: at.Addr(), Node: pod.Node})
	}
	c.client, err = t.Connect(t.Client)
	return c, err
}

// one makes one change, with a client that makes connections all the time. It returns the time until one arrived.
func (c *changes) one(ctx context.Context, kind result.ServiceChange) (time.Duration, error) {
	s := objects.Service{Name: fmt.Sprintf("new-%d", c.made), Address: objects.ChangedAddress(c.made), Ports: []int{suite.EchoPort}, Backends: c.backends}
	c.made++
	to, want := netip.AddrPortFrom(s.Address, suite.EchoPort), convergence.AnyBackend
	if kind == result.BackendAdded {
		s.Backends = c.backends[:1]
		if err := c.API.Put(s.Objects()...); err != nil {
			return 0, err
		}
		if _, err := c.client.Reach(ctx, to, 0, convergence.ChangeLimit); err != nil {
			return 0, fmt.Errorf("reach the first backend: %w", err)
		}
		time.Sleep(c.pause)
		s.Backends, want = c.backends[:2], 1
	}
	return convergence.Time(ctx, c.client, to, want, func() error {
		if kind == result.BackendAdded {
			return c.API.Put(s.Slice())
		}
		return c.API.Put(s.Objects()...)
	})
}
