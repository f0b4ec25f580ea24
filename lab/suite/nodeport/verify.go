package nodeport

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
)

// patience is how long a Service may take to work.
const patience = 30 * time.Second

// verifyTCP proves that a client outside gets a reply through a NodePort, with whole packets in both directions.
func (m *member) verifyTCP(ctx context.Context) error {
	const port = firstTCP
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	target := m.target(port, port)
	for {
		_, err := network.Exchange(ctx, m.Lab.Client(), target, m.backend.Netns, netip.AddrPortFrom(m.backendAddress(), port))
		if err == nil {
			return nil
		}
		if wait.For(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("verify %s: from outside to %s: %w", m.Name(), target, err)
		}
	}
}

// verifyUDP proves that frames of every flow come into the pod, and that none is counted that was not sent.
func (m *member) verifyUDP(ctx context.Context) error {
	if err := m.arrange(result.OneCore, countPackets); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		const count, rate = 2000, 50000
		o, err := m.offer(ctx, packetgen.Load{Rate: rate, For: 5 * time.Second, Count: count})
		if err != nil {
			return fmt.Errorf("verify %s: %w", m.Name(), err)
		}
		if o.arrived == o.Frames {
			return nil
		}
		if wait.For(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("verify %s: %d of %d datagrams for %s arrived in the pod", m.Name(), o.arrived, o.Frames, m.target(udpNodePort, udpPort))
		}
	}
}

// routeThrough routes traffic between the client and pods of the second node through the first one, in both directions,
// where no translation does that.
func (m *member) routeThrough() error {
	by := m.forwarder().Addresses[m.family()].Addr()
	client := m.Lab.ClientAddresses()[m.family()].Addr()
	for _, route := range []struct {
		at testbed.Netns
		to netip.Prefix
	}{
		{m.Lab.Client(), m.far().PodCIDRs[m.family()]},
		{m.far().Netns, netip.PrefixFrom(client, client.BitLen())},
	} {
		err := route.at.Netlink(func(h *netlink.Handle) error {
			return h.RouteAdd(&netlink.Route{Dst: testbed.IPNet(route.to), Gw: by.AsSlice()})
		})
		if err != nil {
			return fmt.Errorf("route to %s via %s: %w", route.to, by, err)
		}
	}
	return nil
}

// disableRedirects keeps the first node from sending ICMP redirects: the suite measures forwarding back to where
// packets come from. Over IPv6 a node redirects to link-local next hops only (RFC 4861, 8.2), which the lab does not
// have.
func (m *member) disableRedirects() error {
	for _, device := range []string{"all", testbed.Uplink} {
		if err := m.forwarder().WriteSysctl("net/ipv4/conf/"+device+"/send_redirects", "0"); err != nil {
			return err
		}
	}
	return nil
}
