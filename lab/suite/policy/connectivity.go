package policy

import (
	"context"
	"net/netip"

	"github.com/beeline-cni/beeline/lab/connectivity"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// connections adds the pods of package connectivity to the lab, with their policies, and tries all connections.
func (m *member) connections(ctx context.Context) (answers []result.Connection, err error) {
	pods := map[string]*testbed.Pod{}
	netnsOf := func(name string) testbed.Netns {
		switch name {
		case connectivity.NearNode:
			return m.Lab.Node(0).Netns
		case connectivity.FarNode:
			return m.Lab.Node(1).Netns
		}
		return pods[name].Netns
	}
	address := func(name string) netip.Addr {
		switch name {
		case connectivity.NearNode:
			return m.Lab.Node(0).Addresses[0].Addr()
		case connectivity.FarNode:
			return m.Lab.Node(1).Addresses[0].Addr()
		}
		return pods[name].Addresses[0]
	}
	if err := m.put(ctx, policies.Namespace(connectivity.Elsewhere, nil)); err != nil {
		return nil, err
	}
	names := []string{connectivity.NearNode, connectivity.FarNode}
	for _, p := range connectivity.Pods() {
		if pods[p.Name], err = m.addPod(ctx, p.Home, p.Pod); err != nil {
			return nil, err
		}
		names = append(names, p.Name)
	}
	for _, name := range names {
		end, err := connectivity.Listen(ctx, netnsOf(name), address(name))
		if err != nil {
			return nil, err
		}
		defer end()
	}
	checks := connectivity.Checks()
	found, err := connectivity.Run(ctx, checks, netnsOf, address, func() error { return m.put(ctx, connectivity.Objects(address)...) })
	if err != nil {
		return nil, err
	}
	for i, q := range checks {
		a := result.Connection{
			Direction: q.Direction, Rule: q.Rule, Case: q.Case, Path: q.Path(), Protocol: string(q.Protocol), From: q.From, To: q.To, Port: int(q.Port),
			Allowed: q.Allowed, Connected: found[i].Connected,
		}
		if found[i].Unknown != nil {
			a.Unknown = found[i].Unknown.Error()
		}
		answers = append(answers, a)
	}
	return answers, nil
}
