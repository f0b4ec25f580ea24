package network

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/vishvananda/netlink"
)

// routePods makes every node forward, with a static route to each other node's pod CIDRs over the wire: what
// a cloud's route table or a routing daemon does for plugins that know of one node only.
func routePods(lab *testbed.Lab) error {
	if err := enableForwarding(lab); err != nil {
		return err
	}
	for _, node := range lab.Nodes() {
		err := node.Netlink(func(h *netlink.Handle) error {
			link, err := h.LinkByName(testbed.Uplink)
			if err != nil {
				return fmt.Errorf("find %s: %w", testbed.Uplink, err)
			}
			for _, other := range lab.Nodes() {
				if other == node {
					continue
				}
				for i, cidr := range other.PodCIDRs {
					via := other.Addresses[i].Addr()
					route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: testbed.IPNet(cidr), Gw: via.AsSlice()}
					if err := h.RouteAdd(route); err != nil {
						return fmt.Errorf("add route to %s via %s: %w", cidr, via, err)
					}
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	return nil
}

func enableForwarding(lab *testbed.Lab) error {
	for _, node := range lab.Nodes() {
		if err := node.EnableForwarding(lab.IPv6); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
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
