package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// network is two nodes and the world on one switch, each in a network namespace of its own, with real
// devices: pods podA and podA2 on node A, podB on node B (see cast_test.go). The namespaces have no names
// and go with the test.
type network struct {
	a, b       *node
	a1, a2, b1 *pod
	world      *place
	sw         place // the switch's own
}

// place is a network namespace.
type place struct {
	ns ns.NetNS
}

type node struct {
	place
	member
	d *opened
	// borrowed is the datapath that the node began with.
	borrowed *opened
	cfg      Config
	// version makes what start loads that of another version; nil is this one.
	version func(testing.TB, *ebpf.CollectionSpec)
	uplink  netlink.LinkAttrs
	routes  map[netip.Prefix]Route
	pods    []*pod
	// tunnelIndex is that of the VXLAN device, 0 without one.
	tunnelIndex int
}

type pod struct {
	place
	member
	node *node
	pair device.Pair
	id   string
	// namespace is Endpoint.Namespace.
	namespace int
}

func newPlace(tb testing.TB) place {
	tb.Helper()
	testenv.Root(tb)
	var made ns.NetNS
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine; the namespace lives by the descriptor
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		if made, err = ns.GetCurrentNS(); err != nil {
			return
		}
		// Link-local addresses work at once: neighbours would not answer while they are tentative.
		for _, conf := range []string{"all", "default"} {
			if _, err = device.SetSysctl("net/ipv6/conf/"+conf+"/accept_dad", "0"); err != nil {
				return
			}
		}
		var lo netlink.Link
		if lo, err = netlink.LinkByName("lo"); err == nil {
			err = netlink.LinkSetUp(lo)
		}
	}()
	<-done
	if err != nil {
		tb.Fatalf("make network namespace: %v", err)
	}
	tb.Cleanup(func() { made.Close() })
	return place{made}
}

// do runs f in the place and ends the test if f fails.
func (p place) do(tb testing.TB, f func() error) {
	tb.Helper()
	if err := p.ns.Do(func(ns.NetNS) error { return f() }); err != nil {
		tb.Fatal(err)
	}
}

func (p place) path() string { return fmt.Sprintf("/proc/self/fd/%d", p.ns.Fd()) }

// options of a network; the zero value is a plain one.
type options struct {
	cfg Config
	// legacy attaches by clsact filters, as on kernels before 6.6.
	legacy bool
	// remoteMTU of the routes between the nodes; 0: 1500, the MTU of all devices.
	remoteMTU int
	// unresolved leaves the routes without link-layer addresses of the nodes.
	unresolved bool
	// tunnel puts the two nodes behind tunnels for each other, whose ends are of IPv6 with tunnelIPv6.
	tunnel, tunnelIPv6 bool
	// strict checks at every device whether the way back would be through it (rp_filter 1).
	strict bool
}

func newNetwork(tb testing.TB, o options) *network {
	tb.Helper()
	sw := newPlace(tb)
	sw.do(tb, func() error {
		off := false
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", MTU: 1500}, MulticastSnooping: &off}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		return netlink.LinkSetUp(bridge)
	})
	n := &network{world: newWorld(tb, sw), sw: sw}
	n.a = newNode(tb, sw, nodeA, o)
	n.b = newNode(tb, sw, nodeB, o)
	n.a.connect(tb, n.b, podB, o)
	n.b.connect(tb, n.a, podA, o)
	n.a1 = n.a.addPod(tb, "a1", podA)
	n.a2 = n.a.addPod(tb, "a2", podA2)
	n.b1 = n.b.addPod(tb, "b1", podB)
	if o.tunnel {
		n.a.tunnel(tb, n.b, podB, o)
		n.b.tunnel(tb, n.a, podA, o)
	}
	for _, node := range []*node{n.a, n.b} {
		node.cfg = o.cfg
		node.cfg.Root = bpffs(tb)
		node.start(tb, o.legacy)
		tb.Cleanup(func() {
			node.do(tb, func() error {
				if node.d != node.borrowed || tb.Failed() {
					return unload(node.d)
				}
				return giveBack(node.d)
			})
		})
	}
	return n
}

// plug joins a place to the switch by a device eth0, with addresses that work at once.
func (p place) plug(sw place, mac MAC, addresses ...string) (netlink.LinkAttrs, error) {
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: "eth0", MTU: 1500, HardwareAddr: mac[:]})
	veth.PeerName = fmt.Sprintf("port%x", mac[4])
	veth.PeerNamespace = netlink.NsFd(int(sw.ns.Fd()))
	if err := netlink.LinkAdd(veth); err != nil {
		return netlink.LinkAttrs{}, fmt.Errorf("plug in: %w", err)
	}
	err := sw.ns.Do(func(ns.NetNS) error {
		port, err := netlink.LinkByName(veth.PeerName)
		if err != nil {
			return err
		}
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMaster(port, bridge), netlink.LinkSetUp(port))
	})
	if err != nil {
		return netlink.LinkAttrs{}, fmt.Errorf("plug in: %w", err)
	}
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return netlink.LinkAttrs{}, err
	}
	for _, a := range addresses {
		address, err := netlink.ParseAddr(a)
		if err != nil {
			return netlink.LinkAttrs{}, err
		}
		if address.IP.To4() == nil {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return netlink.LinkAttrs{}, fmt.Errorf("add %s: %w", a, err)
		}
	}
	return *link.Attrs(), netlink.LinkSetUp(link)
}

func newWorld(tb testing.TB, sw place) *place {
	tb.Helper()
	w := newPlace(tb)
	w.do(tb, func() error {
		up, err := w.plug(sw, router, "172.30.0.9/24", "fd00:172:30::9/64", world.v4.String()+"/32", world.v6.String()+"/128")
		if err != nil {
			return err
		}
		return errors.Join(
			device.AddRoute(device.Route{Prefix: prefix("10.1.1.0/24"), Via: nodeA.v4, Device: up.Index}),
			device.AddRoute(device.Route{Prefix: prefix("fd00:1:1::/64"), Via: nodeA.v6, Device: up.Index}))
	})
	return &w
}

func newNode(tb testing.TB, sw place, m member, o options) *node {
	tb.Helper()
	n := &node{place: newPlace(tb), member: m, routes: map[netip.Prefix]Route{}}
	n.do(tb, func() (err error) {
		if n.uplink, err = n.plug(sw, m.mac, m.v4.String()+"/24", m.v6.String()+"/64"); err != nil {
			return err
		}
		if _, err := device.EnableForwarding("eth0", true, true); err != nil {
			return err
		}
		if o.strict {
			if _, err := device.SetSysctl("net/ipv4/conf/all/rp_filter", "1"); err != nil {
				return err
			}
		}
		return errors.Join(
			device.AddRoute(device.Route{Prefix: prefix("0.0.0.0/0"), Via: addr("172.30.0.9"), Device: n.uplink.Index}),
			device.AddRoute(device.Route{Prefix: prefix("::/0"), Via: addr("fd00:172:30::9"), Device: n.uplink.Index}))
	})
	for _, a := range []netip.Addr{m.v4, m.v6} {
		n.routes[netip.PrefixFrom(a, a.BitLen())] = Route{Kind: RouteCluster}
	}
	return n
}

// rangeOf is the pod range of an address of the cast.
func rangeOf(a netip.Addr) netip.Prefix {
	p, err := a.Prefix(a.BitLen() * 3 / 4) // /24 and, in effect, /96
	if err != nil {
		panic(err)
	}
	if a.Is6() {
		p, _ = a.Prefix(64)
	}
	return p
}

// connect gives the node its own ranges and the routes to another one, whose pods look like far.
func (n *node) connect(tb testing.TB, other *node, far member, o options) {
	tb.Helper()
	mtu := o.remoteMTU
	if mtu == 0 {
		mtu = 1500
	}
	for _, via := range []netip.Addr{other.v4, other.v6} {
		pods := rangeOf(far.v4)
		if via.Is6() {
			pods = rangeOf(far.v6)
		}
		r := Route{Kind: RouteRemote, Interface: n.uplink.Index, MTU: mtu, NextHop: via, UplinkMAC: n.mac}
		if !o.unresolved {
			r.NextHopMAC = other.mac
		}
		n.routes[pods] = r
		n.routes[netip.PrefixFrom(via, via.BitLen())] = r
		n.do(tb, func() error {
			return device.AddRoute(device.Route{Prefix: pods, Via: via, Device: n.uplink.Index, MTU: o.remoteMTU})
		})
	}
}

// addPod makes a pod with its device; AttachPod comes with start or by the test.
func (n *node) addPod(tb testing.TB, id string, m member) *pod {
	tb.Helper()
	p := &pod{place: newPlace(tb), node: n, member: m, id: id}
	p.plugIn(tb)
	n.pods = append(n.pods, p)
	for _, a := range []netip.Addr{m.v4, m.v6} {
		n.routes[rangeOf(a)] = Route{Kind: RouteLocal}
	}
	return p
}

// plugIn makes the pod's device pair and its node's routes to it.
func (p *pod) plugIn(tb testing.TB) {
	tb.Helper()
	gateways := []netip.Addr{addr("169.254.1.1"), addr("fe80::1")}
	p.node.do(tb, func() (err error) {
		if p.pair, err = device.CreatePair(device.PairSpec{ContainerID: p.id, IfName: "eth0", Netns: p.path(), MTU: 1500}); err != nil {
			return err
		}
		host, ok, err := device.FindHost(p.pair.HostName)
		if err != nil || !ok {
			return fmt.Errorf("find device of %s: %v, %w", p.id, ok, err)
		}
		p.namespace = host.Namespace + 1
		copy(p.mac[:], p.pair.PodMAC)
		copy(p.gateway[:], p.pair.HostMAC)
		if err := device.ConfigurePod(p.path(), "eth0", device.PodConfig{
			MTU: 1500, Gateways: gateways, HostMAC: p.pair.HostMAC,
			Addresses: []netip.Prefix{netip.PrefixFrom(p.v4, 32), netip.PrefixFrom(p.v6, 128)},
		}); err != nil {
			return err
		}
		for _, a := range []netip.Addr{p.v4, p.v6} {
			if err := errors.Join(device.SetNeighbour(p.pair.HostIndex, a, p.pair.PodMAC),
				device.AddRoute(device.Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: p.pair.HostIndex})); err != nil {
				return err
			}
		}
		return nil
	})
}

func (n *node) endpoints() map[netip.Addr]Endpoint {
	all := map[netip.Addr]Endpoint{}
	for _, p := range n.pods {
		e := Endpoint{Interface: p.pair.HostIndex, PodMAC: p.mac, HostMAC: p.gateway, Namespace: p.namespace}
		all[p.v4], all[p.v6] = e, e
	}
	return all
}

// start does what the agent does when it starts: open, fill the tables, attach, commit.
func (n *node) start(tb testing.TB, legacy bool) {
	tb.Helper()
	n.do(tb, func() (err error) {
		if n.borrowed == nil {
			n.d, err = borrow(n.cfg, n.programsHere(), testLog(tb))
			n.borrowed = n.d
		} else {
			n.d, err = openVersion(tb, n.cfg, n.version, n.programsHere())
		}
		if err != nil {
			return err
		}
		if legacy {
			n.d.objects.tcx = false
		}
		if _, err := n.d.Endpoints.Sync(n.endpoints()); err != nil {
			return err
		}
		if err := n.d.Tunnel.SetSources(n.v4, n.v6); err != nil {
			return err
		}
		if _, err := n.d.Routes.Sync(n.routes); err != nil {
			return err
		}
		if err := n.d.Lease.Renew(time.Hour); err != nil {
			return err
		}
		if _, err := n.d.Uplinks.Sync(map[int]Uplink{n.uplink.Index: {IPv4: n.v4, IPv6: n.v6, MAC: n.mac, MTU: 1500}}); err != nil {
			return err
		}
		for _, p := range n.pods {
			if err := n.d.AttachPod(p.pair.HostName, p.pair.HostIndex); err != nil {
				return err
			}
		}
		if err := n.d.AttachUplink("eth0", n.uplink.Index); err != nil {
			return err
		}
		if n.tunnelIndex != 0 {
			if err := n.d.AttachTunnel(device.TunnelName, n.tunnelIndex); err != nil {
				return err
			}
		}
		return n.d.Commit()
	})
}

// dropped gives the drop counters that are not zero, by "program reason".
func (n *node) dropped(tb testing.TB) map[string]uint64 {
	tb.Helper()
	all, err := n.d.Drops.All()
	if err != nil {
		tb.Fatal(err)
	}
	counted := map[string]uint64{}
	for _, d := range all {
		if d.Packets > 0 {
			counted[d.Program+" "+d.Reason.String()] = d.Packets
		}
	}
	return counted
}

// forwarded counts the packets of both families that the node's stack has forwarded.
func (n *node) forwarded(tb testing.TB) uint64 {
	tb.Helper()
	var sum uint64
	n.do(tb, func() error {
		v4, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		v6, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		sum = snmp(string(v4), "Ip", "ForwDatagrams") + snmp6(string(v6), "Ip6OutForwDatagrams")
		return nil
	})
	return sum
}
