package policy

import (
	"context"
	"net/netip"

	"github.com/beeline-cni/beeline/lab/connectivity"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// connections adds the pods of package connectivity to the lab, with their policies, and tries all connections.
func (m *member) connections(ctx context.Context) (_ []result.Connection, err error) {
	pods := map[string]*testbed.Pod{}
	for i, name := range []string{connectivity.NearNode, connectivity.FarNode} {
		pods[name] = network.NodeAsPod(m.Lab.Node(i), name, m.Lab.MTU)
	}
	netns := func(name string) testbed.Netns { return pods[name].Netns }
	address := func(name string) netip.Addr { return pods[name].Addresses[0] }
	if err := m.Put(ctx, policies.Namespace(connectivity.Elsewhere, nil)); err != nil {
		return nil, err
	}
	for _, p := range connectivity.Pods() {
		if pods[p.Name], err = m.AddPod(ctx, p.Home, p.Pod); err != nil {
			return nil, err
		}
	}
	for name := range pods {
		end, err := connectivity.Listen(ctx, netns(name), address(name))
		if err != nil {
			return nil, err
		}
		defer end()
	}
	return connectivity.Run(ctx, connectivity.Checks(), netns, address, func() error { return m.Put(ctx, connectivity.Objects(address)...) })
}
