package measure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// probes is how many Services are asked whether they work: the first, the last, and others between them.
const probes = 16

// starts measures how every network takes in all Services from nothing. Each has one node alone, one after the other.
func (b *servicesBench) starts(ctx context.Context) error {
	for _, proxy := range b.plan.Proxies {
		if proxy.Unsupported() != "" || b.plan.Starts == 0 || !reachesFromNode(proxy) {
			continue
		}
		r := result.Sync{Network: proxy.Name(), Services: b.plan.Most, Backends: b.plan.Backends, Seconds: []float64{}}
		for i := range b.plan.Starts {
			b.progress.Step("starting %s among %d Services with %d backends each, %d of %d", r.Network, r.Services, r.Backends, i+1, b.plan.Starts)
			err := b.startOnce(ctx, proxy, &r)
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), err)
			}
			b.progress.Advance(aStart + rest)
			if err != nil {
				b.progress.Note("start of %s: %v", r.Network, err)
				r.Error = err.Error()
				break
			}
		}
		b.run.Services.Syncs = append(b.run.Services.Syncs, r)
	}
	return nil
}

// reachesFromNode says whether what is measured here can be seen: there are no pods, and connections begin on the node.
func reachesFromNode(proxy network.Proxy) bool {
	c, ok := proxy.(network.BeelineServices)
	return !ok || !c.AtTC
}

// startOnce starts a network once, on a lab of its own.
func (b *servicesBench) startOnce(ctx context.Context, proxy network.Proxy, r *result.Sync) (err error) {
	lab, err := testbed.Up(ctx, testbed.Options{Name: nextLabName(), Nodes: 1, MTU: b.plan.MTU, Network: r.Network})
	if err != nil {
		return err
	}
	defer func() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
		defer cancel()
		err = errors.Join(err, lab.Down(down))
	}()
	server, kubeconfig, err := network.ServeObjects(ctx, lab)
	if err != nil {
		return err
	}
	defer server.Close()
	node := lab.Node(0)
	backend := services.Backend{Address: node.Addresses[0].Addr(), Node: node.Name}
	if err := server.Put(fillProbed(r.Services, r.Backends, lab.Nodes(), backend)...); err != nil {
		return err
	}
	listener, err := convergence.Listen(ctx, node.Place(), netip.AddrPortFrom(backend.Address, services.FillerPort), 0)
	if err != nil {
		return err
	}
	defer listener.Close()
	program, err := network.Program()
	if err != nil {
		return err
	}
	client, err := convergence.Start(node.Place(), program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	proxy = proxy.WithKubeconfig(kubeconfig)
	begin := time.Now()
	if err := errors.Join(proxy.Up(ctx, lab), proxy.StartProxy(ctx, lab)); err != nil {
		return err
	}
	last := begin
	for _, i := range probed(r.Services) {
		left := b.plan.StartLimit - time.Since(begin)
		at, err := client.Reach(ctx, netip.AddrPortFrom(services.FillerAddress(i), services.FillerPort), 0, left)
		if err != nil {
			return fmt.Errorf("not within %v: Service %d of %d: %w", b.plan.StartLimit, i+1, r.Services, err)
		}
		if at.After(last) {
			last = at
		}
	}
	r.Seconds = append(r.Seconds, last.Sub(begin).Seconds())
	return b.memory(ctx, proxy, node, r)
}

// memory reads what the network holds once it has come to rest.
func (b *servicesBench) memory(ctx context.Context, proxy network.Proxy, node *testbed.Node, r *result.Sync) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rest):
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", proxy.ProxyPID(node)))
	if err != nil {
		return fmt.Errorf("read memory of %s: %w", r.Network, err)
	}
	rss, err := parseRSS(string(status))
	if err != nil {
		return err
	}
	r.RSSBytes = max(r.RSSBytes, rss) // of several starts, the one that took most
	socket := network.AgentSocket(proxy, node)
	if socket == "" {
		return nil
	}
	s, err := agentapi.NewClient(socket).Status(ctx)
	if err != nil {
		return fmt.Errorf("ask agent for its maps: %w", err)
	}
	r.MapBytes = 0
	for _, m := range s.Maps {
		r.MapBytes += m.Bytes
	}
	return nil
}
