package macvlan_test

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// Where the uplink answers ARP for a pod of the routed underlay, pods with macvlan devices on it reach that pod. The kernel has no record of
// who sends the reply: for an address of another pod it is forged.
func TestMacvlanReachesRoutedPod(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true}})
	m := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0])
	routed, other := n.A1, n.A2
	n.A.Do(t, func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/"+n.A.Uplink.Name+"/proxy_arp", []byte("1"), 0)
	})
	m.Do(t, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for _, pod := range []*netlab.Pod{routed, other} {
			onLink := &netlink.Route{LinkIndex: eth0.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: netlink.NewIPNet(pod.V4.AsSlice())}
			if err := netlink.RouteAdd(onLink); err != nil {
				return err
			}
		}
		return nil
	})
	all, err := n.A.D.Endpoints.All()
	if err != nil {
		t.Fatal(err)
	}
	endpoint := all[routed.V4]
	endpoint.Underlay = true
	if err := n.A.D.Endpoints.Set(routed.V4, endpoint); err != nil {
		t.Fatal(err)
	}
	netlab.Carries(t, m.Netns, routed.Netns, m.V4, routed.V4)
	n.DropsNothing(t)

	before := n.A.Dropped(t)["from_macvlan spoofed_source"]
	fixtures.Write(t, m.Dial(t, "udp", other.V4), "who has it?")
	n.AwaitDropped(t, n.A, map[string]uint64{"from_macvlan spoofed_source": before + 1})
	if mac := knownMAC(t, m.Netns, other.V4); mac != "" && mac != "00:00:00:00:00:00" {
		t.Errorf("the pod knows %s, which has no address of the wire, at %s", other.V4, mac)
	}
}
