package macvlan_test

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/device/sock"
)

// A packet waits for a neighbour while its pod deletes the route that it took. Then the kernel says that the packet leaves by a device of
// the first network namespace, which is a node's own. It is not the node's.
func TestMacvlanDeletedRoute(t *testing.T) {
	first, err := sock.NetnsCookie() // in a container it is another one, and this test shows nothing
	if err != nil {
		t.Fatal(err)
	}
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true, HostNetns: first}})
	attacker := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0])
	external := n.ExternalOnSwitch(4)
	received := n.External.ListenUDP(t, external)
	var eth0 int
	attacker.Do(t, func() error {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			eth0 = link.Attrs().Index
		}
		return err
	})
	router, behind := fixtures.Addr("172.30.0.77"), fixtures.Addr("172.30.0.88")
	route := &netlink.Route{LinkIndex: eth0, Dst: &net.IPNet{IP: behind.AsSlice(), Mask: net.CIDRMask(32, 32)}, Gw: router.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
	attacker.Do(t, func() error {
		if err := netlink.RouteAdd(route); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		packet := fixtures.Eth(attacker.Mac, fixtures.Router).Ipv4(n.B.V4, external).Udp(1, netlab.EchoPort).Payload("forged").Bytes()[fixtures.EthLen:]
		if err := unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: behind.As4()}); err != nil {
			return err
		}
		return netlink.RouteDel(route)
	})
	time.Sleep(200 * time.Millisecond) // after a grace period of the kernel
	attacker.Do(t, func() error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: eth0, IP: router.AsSlice(), HardwareAddr: fixtures.Router[:], State: netlink.NUD_REACHABLE})
	})
	fixtures.Write(t, attacker.Dial(t, "udp", external), "own")
	if err := netlab.Expect(received, []byte("own")); err != nil {
		t.Error(err)
	}
}
