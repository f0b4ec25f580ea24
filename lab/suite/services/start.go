package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
)

// probes is how many Services are tried: the first, the last, and others between them.
const probes = 16

// probed are the numbers of the Services that are tried, of so many.
func probed(total int) []int {
	var list []int
	for i := range probes {
		list = append(list, i*(total-1)/(probes-1))
	}
	return sorted(list)
}

// fillProbed are the objects of so many Services. Those that are tried have one backend that answers.
func fillProbed(total, backends int, nodes []*testbed.Node, answers services.Backend) []runtime.Object {
	var objects []runtime.Object
	next := probed(total)
	for i := range total {
		s := services.Filler(i, backends, nodes)
		if len(next) > 0 && next[0] == i {
			s.Backends, next = []services.Backend{answers}, next[1:]
		}
		objects = append(objects, s.Objects()...)
	}
	return objects
}

// starts measures how long every network takes for all Services after a start, one after the other, each on one node.
func (s *Suite) starts(ctx context.Context, b *round.Bench) error {
	for _, proxy := range s.proxies() {
		if proxy.Unsupported() != "" || s.Starts == 0 || !nodeSockets(proxy) {
			continue
		}
		r := result.Sync{Network: proxy.Name(), Services: s.Most, Backends: s.Backends, Seconds: []float64{}}
		for i := range s.Starts {
			b.Progress.Step("starting %s among %d Services with %d backends each, %d of %d", r.Network, r.Services, r.Backends, i+1, s.Starts)
			err := s.startOnce(ctx, proxy, &r)
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), err)
			}
			b.Progress.Advance(startTime + rest)
			if err != nil {
				b.Progress.Note("start of %s: %v", r.Network, err)
				r.Error = err.Error()
				break
			}
		}
		b.Result.Services.Syncs = append(b.Result.Services.Syncs, r)
	}
	return nil
}

// nodeSockets reports whether connections from the node itself reach Services: here are no pods.
func nodeSockets(proxy network.Proxy) bool {
	c, ok := proxy.(network.Beeline)
	return !ok || c.NodeSockets()
}

// startOnce starts a network once, on a lab of its own, and adds what that took to the result.
func (s *Suite) startOnce(ctx context.Context, proxy network.Proxy, r *result.Sync) error {
	t, err := suite.Open(ctx, proxy, testbed.Options{Nodes: 1, MTU: s.MTU}, func(t *suite.Testbed) error { return s.start(ctx, t, proxy, r) })
	if err != nil {
		return err
	}
	return t.Close()
}

func (s *Suite) start(ctx context.Context, t *suite.Testbed, proxy network.Proxy, r *result.Sync) error {
	node := t.Lab.Node(0)
	itself := network.NodeAsPod(node, "node", s.MTU)
	backend := services.Backend{Address: itself.Addresses[0], Node: node.Name}
	if err := t.ServeObjects(ctx, fillProbed(r.Services, r.Backends, t.Lab.Nodes(), backend)...); err != nil {
		return err
	}
	if _, err := t.Listen(ctx, itself, services.FillerPort, 0); err != nil {
		return err
	}
	client, err := t.Connect(itself)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := errors.Join(proxy.Up(ctx, t.Lab), proxy.StartProxy(ctx, t.Lab)); err != nil {
		return err
	}
	last := begin
	for _, i := range probed(r.Services) {
		left := s.StartLimit - time.Since(begin)
		at, err := client.Reach(ctx, netip.AddrPortFrom(services.FillerAddress(i), services.FillerPort), 0, left)
		if err != nil {
			return fmt.Errorf("not within %v: Service %d of %d: %w", s.StartLimit, i+1, r.Services, err)
		}
		if at.After(last) {
			last = at
		}
	}
	r.Seconds = append(r.Seconds, last.Sub(begin).Seconds())
	return memory(ctx, t, proxy, r)
}

// memory reads what the network holds a while after its start.
func memory(ctx context.Context, t *suite.Testbed, proxy network.Proxy, r *result.Sync) error {
	if err := wait.For(ctx, rest); err != nil {
		return err
	}
	rss, err := procstat.ProcessMemory(proxy.ProxyPID(t.Lab.Node(0)))
	if err != nil {
		return err
	}
	r.RSSBytes = max(r.RSSBytes, rss) // of several starts, the one that took most
	r.MapBytes, err = t.MapBytes(ctx)
	return err
}
