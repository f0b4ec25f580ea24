package network

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/vishvananda/netlink"
)

// routePods makes every node forward, with a static route to each other node's pod CIDRs over the wire: what
// a cloud's route table or a routing daemon does for plugins that know of one node only.
func routePods(ctx context.Context, lab *testbed.Lab) error {
	for _, node := range lab.Nodes() {
		var routes strings.Builder
		for _, other := range lab.Nodes() {
			for i, cidr := range other.PodCIDRs {
				if other != node {
					fmt.Fprintf(&routes, "route add %s via %s dev %s\n", cidr, other.Addresses[i].Addr(), testbed.Uplink)
				}
			}
		}
		if err := node.EnableForwarding(lab.IPv6); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
		if err := node.Input(ctx, routes.String(), "ip", "-batch", "-"); err != nil {
			return fmt.Errorf("route pods of other nodes on %s: %w", node.Name, err)
		}
	}
	return nil
}

// routeMTU is the MTU of the route to an address, or else of its device.
func routeMTU(netns testbed.Netns, to netip.Addr) (mtu int, err error) {
	err = netns.Netlink(func(h *netlink.Handle) error {
		routes, err := h.RouteGet(to.AsSlice())
		if err != nil {
			return err
		}
		if len(routes) == 0 {
			return fmt.Errorf("no route")
		}
		if mtu = routes[0].MTU; mtu != 0 {
			return nil
		}
		link, err := h.LinkByIndex(routes[0].LinkIndex)
		if err != nil {
			return err
		}
		mtu = link.Attrs().MTU
		return nil
	})
	return mtu, err
}

// commonFacts are those every network has.
func commonFacts(lab *testbed.Lab) map[string]string {
	facts := map[string]string{
		"wire MTU":           strconv.Itoa(lab.MTU),
		"congestion control": lab.CongestionControl,
	}
	pods, err := lab.Pods()
	if err == nil && len(pods) > 0 && pods[0].MTU > 0 {
		facts["pod MTU"] = strconv.Itoa(pods[0].MTU)
	}
	return facts
}
