package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/suite"
)

// changePause is from one change to the next. It is longer for kube-proxy, which waits a second between two times that
// it writes, so that no change waits for the one before.
const (
	changePause    = 100 * time.Millisecond
	kubeProxyPause = 1200 * time.Millisecond
)

// changes times how long traffic takes to follow, network by network, among the largest number of Services.
func (s *Suite) changes(ctx context.Context, b *round.Bench) error {
	if s.Changes == 0 {
		return nil
	}
	for _, proxy := range s.proxies() {
		m := s.members[proxy.Name()][s.Most]
		if m == nil {
			continue
		}
		c, err := newChanges(ctx, m)
		if err == nil {
			for _, kind := range []result.ServiceChange{result.ServiceCreated, result.BackendAdded} {
				if ctx.Err() != nil {
					break
				}
				b.Progress.Step("timing changes: %s, %s", proxy.Name(), kind)
				r := result.ServiceConvergence{Network: m.Name(), Change: kind, Services: m.services, Backends: m.backends}
				r.Milliseconds, err = convergence.Repeat(ctx, s.Changes, s.ChangesFor, c.pause, func() (time.Duration, error) { return c.one(ctx, kind) })
				if err != nil {
					r.Error = err.Error()
				}
				b.Result.Services.Convergence = append(b.Result.Services.Convergence, r)
			}
		} else {
			b.Progress.Note("changes of %s: %v", proxy.Name(), err)
		}
		if err := errors.Join(ctx.Err(), c.close()); err != nil {
			return err
		}
		b.Progress.Advance(s.changesTake())
	}
	return nil
}

// changes are those of one network.
type changes struct {
	member   *member
	backends []services.Backend
	client   *convergence.Client
	made     int
	pause    time.Duration
	closers  []func() error
}

// newChanges adds the backends, each of which answers with its number. The caller closes the result also after an
// error.
func newChanges(ctx context.Context, m *member) (*changes, error) {
	c := &changes{member: m, pause: changePause}
	if _, ok := m.proxy.(network.KubeProxy); ok {
		c.pause = kubeProxyPause
	}
	for i := range manyBackends {
		pod, err := m.addPod(ctx, 1, fmt.Sprintf("backend%d", i))
		if err != nil {
			return c, err
		}
		listener, err := convergence.Listen(ctx, pod.Netns, netip.AddrPortFrom(pod.Addresses[0], suite.EchoPort), byte(i))
		if err != nil {
			return c, err
		}
		c.closers = append(c.closers, listener.Close)
		c.backends = append(c.backends, services.Backend{Address: pod.Addresses[0], Node: pod.Node})
	}
	var err error
	if c.client, err = convergence.Start(m.Client.Netns); err != nil {
		return c, err
	}
	c.closers = append(c.closers, c.client.Close)
	return c, nil
}

func (c *changes) close() error {
	var errs []error
	for _, closer := range c.closers {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// one makes one change, with a client that makes connections all the time. It returns the time until one arrived.
func (c *changes) one(ctx context.Context, kind result.ServiceChange) (time.Duration, error) {
	s := services.Service{Name: fmt.Sprintf("new-%d", c.made), Address: services.ChangedAddress(c.made), Ports: []int{suite.EchoPort}, Backends: c.backends}
	c.made++
	to, want := netip.AddrPortFrom(s.Address, suite.EchoPort), convergence.AnyBackend
	if kind == result.BackendAdded {
		s.Backends = c.backends[:1]
		if err := c.member.API.Put(s.Objects()...); err != nil {
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
			return c.member.API.Put(s.Slice())
		}
		return c.member.API.Put(s.Objects()...)
	})
}
