package measure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/services"
)

const (
	// changeLimit is how long a single change is waited for.
	changeLimit = 2 * time.Minute
	// changePause is from one change to the next; kubeProxyPause for kube-proxy, which lets a second pass between two times
	// that it writes: so no change waits for the one before.
	changePause    = 100 * time.Millisecond
	kubeProxyPause = 1200 * time.Millisecond
	// warning is for how long the client makes connections before a change.
	warning = 20 * time.Millisecond
)

// changes times how long it takes until traffic follows, network by network, among the largest number of Services.
func (b *servicesBench) changes(ctx context.Context) error {
	if b.plan.Changes == 0 {
		return nil
	}
	for _, proxy := range b.plan.Proxies {
		l := b.testbeds[proxy.Name()][b.plan.Most]
		if l == nil {
			continue
		}
		c, err := newChanges(ctx, l)
		if err == nil {
			for _, what := range []result.ServiceChange{result.ServiceCreated, result.BackendAdded} {
				if ctx.Err() != nil {
					break
				}
				b.progress.Step("timing changes: %s, %s", proxy.Name(), what)
				b.run.Services.Convergence = append(b.run.Services.Convergence, c.time(ctx, what, b.plan))
			}
		} else {
			b.progress.Note("changes of %s: %v", proxy.Name(), err)
		}
		if err := errors.Join(ctx.Err(), c.close()); err != nil {
			return err
		}
		b.progress.Advance(2 * min(b.plan.ChangesFor, time.Duration(b.plan.Changes)*aChange))
	}
	return nil
}

// changes are those of one testbed.
type changes struct {
	testbed  *serviceTestbed
	backends []services.Backend
	client   *convergence.Client
	made     int
	pause    time.Duration
	closers  []func() error
}

// newChanges adds the backends, each of which says who it is. The result is to be closed also after an error.
func newChanges(ctx context.Context, l *serviceTestbed) (*changes, error) {
	c := &changes{testbed: l, pause: changePause}
	if isKubeProxy(l.proxy) {
		c.pause = kubeProxyPause
	}
	for i := range mostlyBackends {
		pod, err := l.addPod(ctx, 1, fmt.Sprintf("backend%d", i))
		if err != nil {
			return c, err
		}
		listener, err := convergence.Listen(ctx, l.lab.Place(pod), netip.AddrPortFrom(pod.Addresses[0], echoPort), byte(i))
		if err != nil {
			return c, err
		}
		c.closers = append(c.closers, listener.Close)
		c.backends = append(c.backends, services.Backend{Address: pod.Addresses[0], Node: pod.Node})
	}
	client, err := l.follower()
	if err != nil {
		return c, err
	}
	c.client = client
	c.closers = append(c.closers, client.Close)
	return c, nil
}

func (c *changes) close() error {
	var errs []error
	for _, closer := range c.closers {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// time makes changes of one kind, one after the other.
func (c *changes) time(ctx context.Context, what result.ServiceChange, p ServicesPlan) result.ServiceConvergence {
	r := result.ServiceConvergence{Network: c.testbed.network.Name(), Change: what, Services: c.testbed.services, Backends: c.testbed.backends, Milliseconds: []float64{}}
	for began := time.Now(); len(r.Milliseconds) < p.Changes && time.Since(began) < p.ChangesFor; {
		took, err := c.one(ctx, what)
		if err != nil {
			r.Error = err.Error()
			break
		}
		r.Milliseconds = append(r.Milliseconds, float64(took)/float64(time.Millisecond))
		select {
		case <-ctx.Done():
			r.Error = ctx.Err().Error()
			return r
		case <-time.After(c.pause):
		}
	}
	return r
}

// one makes one change, with a client that makes connections all the time, and gives the time until one arrived.
func (c *changes) one(ctx context.Context, what result.ServiceChange) (time.Duration, error) {
	s := services.Service{Name: fmt.Sprintf("new-%d", c.made), Address: services.ChangedAddress(c.made), Ports: []int{echoPort}, Backends: c.backends}
	c.made++
	to, want := netip.AddrPortFrom(s.Address, echoPort), convergence.Anybody
	if what == result.BackendAdded {
		s.Backends = c.backends[:1]
		if err := c.testbed.api.Put(s.Objects()...); err != nil {
			return 0, err
		}
		if _, err := c.client.Reach(ctx, to, 0, changeLimit); err != nil {
			return 0, fmt.Errorf("reach the first backend: %w", err)
		}
		time.Sleep(c.pause)
		s.Backends, want = c.backends[:2], 1
	}
	return timed(ctx, c.client, to, want, func() error {
		if what == result.BackendAdded {
			return c.testbed.api.Put(s.Slice())
		}
		return c.testbed.api.Put(s.Objects()...)
	})
}
