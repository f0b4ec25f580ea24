// Package netlab is two nodes with pods and an external host in network namespaces, with real devices, sockets and traffic.
package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/sock"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Network is two nodes and an external host on one switch, each in its own network namespace, with real devices: pods
// PodA and PodA2 on node A, PodB on node B. The namespaces are unnamed and end with the test.
type Network struct {
	A, B       *Node
	A1, A2, B1 *Pod
	External   *Netns
	sw         Netns // the switch's own
}

// Netns is a network namespace.
type Netns struct {
	Ns ns.NetNS
}

type Node struct {
	Netns
	fixtures.Member
	D *harness.Opened
	// borrowed is the datapath that the node began with.
	borrowed *harness.Opened
	Cfg      config.Datapath
	// version makes what start loads that of another version; nil is this one.
	Version func(testing.TB, *ebpf.CollectionSpec)
	Uplink  netlink.LinkAttrs
	Routes  map[netip.Prefix]fwd.Route
	pods    []*Pod
	// tunnelIndex is that of the VXLAN device, 0 without one.
	TunnelIndex int
}

type Pod struct {
	Netns
	fixtures.Member
	Node *Node
	Pair device.PodDevice
	id   string
	// namespace is Endpoint.Namespace.
	namespace int
	// macvlan: the pod is on the node's uplink, and its host end carries the node's packets only.
	macvlan bool
}

func NewNetns(tb testing.TB) Netns {
	tb.Helper()
	testenv.Root(tb)
	made, err := ns.TempNetNS()
	if err != nil {
		tb.Fatalf("make network namespace: %v", err)
	}
	tb.Cleanup(func() { made.Close() })
	p := Netns{made}
	p.Do(tb, func() error {
		// Link-local addresses work at once: neighbours would not answer while they are tentative.
		for _, conf := range []string{"all", "default"} {
			if _, err := sysctl.Set("net/ipv6/conf/"+conf+"/accept_dad", "0"); err != nil {
				return err
			}
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return p
}

// Do runs f in the netns and fails the test if f fails.
func (p Netns) Do(tb testing.TB, f func() error) {
	tb.Helper()
	if err := p.Ns.Do(func(ns.NetNS) error { return f() }); err != nil {
		tb.Fatal(err)
	}
}

func (p Netns) Path() string { return fmt.Sprintf("/proc/self/fd/%d", p.Ns.Fd()) }

// Options of a network; the zero value is a plain one.
type Options struct {
	Cfg config.Datapath
	// legacy attaches by clsact filters, as on kernels before 6.6.
	Legacy bool
	// RemoteMTU of the routes between the nodes; 0: 1500, the MTU of all devices.
	RemoteMTU int
	// unresolved leaves the routes without link-layer addresses of the nodes.
	Unresolved bool
	// tunnel puts the two nodes behind tunnels for each other, whose ends are of IPv6 with tunnelIPv6.
	Tunnel, TunnelIPv6 bool
	// strict checks at every device whether the way back would be through it (rp_filter 1).
	Strict bool
}

func NewNetwork(tb testing.TB, o Options) *Network {
	tb.Helper()
	sw := NewNetns(tb)
	sw.Do(tb, func() error {
		off := false
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", MTU: 1500}, MulticastSnooping: &off}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		return netlink.LinkSetUp(bridge)
	})
	n := &Network{External: newExternal(tb, sw), sw: sw}
	n.A = newNode(tb, sw, fixtures.NodeA, o)
	n.B = newNode(tb, sw, fixtures.NodeB, o)
	n.A.connect(tb, n.B, fixtures.PodB, o)
	n.B.connect(tb, n.A, fixtures.PodA, o)
	n.A1 = n.A.addPod(tb, "a1", fixtures.PodA)
	n.A2 = n.A.addPod(tb, "a2", fixtures.PodA2)
	n.B1 = n.B.addPod(tb, "b1", fixtures.PodB)
	if o.Tunnel {
		n.A.tunnel(tb, n.B, fixtures.PodB, o)
		n.B.tunnel(tb, n.A, fixtures.PodA, o)
	}
	for _, node := range []*Node{n.A, n.B} {
		node.Cfg = o.Cfg
		node.Cfg.Root = fixtures.Bpffs(tb)
		node.Start(tb, o.Legacy)
		tb.Cleanup(func() {
			node.Do(tb, func() error {
				if node.D != node.borrowed || tb.Failed() {
					return harness.Unload(node.D)
				}
				return harness.GiveBack(node.D)
			})
		})
	}
	return n
}

// plug connects a netns to the switch by a device eth0 with usable addresses.
func (p Netns) plug(sw Netns, mac fwd.MAC, addresses ...string) (netlink.LinkAttrs, error) {
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: "eth0", MTU: 1500, HardwareAddr: mac[:]})
	veth.PeerName = fmt.Sprintf("port%x", mac[4])
	veth.PeerNamespace = netlink.NsFd(int(sw.Ns.Fd()))
	if err := netlink.LinkAdd(veth); err != nil {
		return netlink.LinkAttrs{}, fmt.Errorf("plug in: %w", err)
	}
	err := sw.Ns.Do(func(ns.NetNS) error {
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

func newExternal(tb testing.TB, sw Netns) *Netns {
	tb.Helper()
	w := NewNetns(tb)
	w.Do(tb, func() error {
		up, err := w.plug(sw, fixtures.Router, "172.30.0.9/24", "fd00:172:30::9/64", fixtures.External.V4.String()+"/32", fixtures.External.V6.String()+"/128")
		if err != nil {
			return err
		}
		return errors.Join(
			route.Add(route.Route{Prefix: fixtures.Prefix("10.1.1.0/24"), Via: fixtures.NodeA.V4, Device: up.Index}),
			route.Add(route.Route{Prefix: fixtures.Prefix("fd00:1:1::/64"), Via: fixtures.NodeA.V6, Device: up.Index}))
	})
	return &w
}

func newNode(tb testing.TB, sw Netns, m fixtures.Member, o Options) *Node {
	tb.Helper()
	n := &Node{Netns: NewNetns(tb), Member: m, Routes: map[netip.Prefix]fwd.Route{}}
	n.Do(tb, func() (err error) {
		if n.Uplink, err = n.plug(sw, m.Mac, m.V4.String()+"/24", m.V6.String()+"/64"); err != nil {
			return err
		}
		if _, err := sysctl.EnableForwarding("eth0", true, true); err != nil {
			return err
		}
		if o.Strict {
			if _, err := sysctl.Set("net/ipv4/conf/all/rp_filter", "1"); err != nil {
				return err
			}
		}
		return errors.Join(
			route.Add(route.Route{Prefix: fixtures.Prefix("0.0.0.0/0"), Via: fixtures.Addr("172.30.0.9"), Device: n.Uplink.Index}),
			route.Add(route.Route{Prefix: fixtures.Prefix("::/0"), Via: fixtures.Addr("fd00:172:30::9"), Device: n.Uplink.Index}))
	})
	for _, a := range []netip.Addr{m.V4, m.V6} {
		n.Routes[netip.PrefixFrom(a, a.BitLen())] = fwd.Route{Kind: fwd.RouteCluster}
	}
	return n
}

// RangeOf is the pod range of a fixture's address.
func RangeOf(a netip.Addr) netip.Prefix {
	bits := 24
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// connect gives the node its own ranges and the routes to another one, whose pods look like far.
func (n *Node) connect(tb testing.TB, other *Node, far fixtures.Member, o Options) {
	tb.Helper()
	mtu := o.RemoteMTU
	if mtu == 0 {
		mtu = 1500
	}
	for _, via := range []netip.Addr{other.V4, other.V6} {
		pods := RangeOf(far.V4)
		if via.Is6() {
			pods = RangeOf(far.V6)
		}
		r := fwd.Route{Kind: fwd.RouteRemote, Interface: n.Uplink.Index, MTU: mtu, NextHop: via, UplinkMAC: n.Mac}
		if !o.Unresolved {
			r.NextHopMAC = other.Mac
		}
		n.Routes[pods] = r
		n.Routes[netip.PrefixFrom(via, via.BitLen())] = r
		n.Do(tb, func() error {
			return route.Add(route.Route{Prefix: pods, Via: via, Device: n.Uplink.Index, MTU: o.RemoteMTU})
		})
	}
}

// addPod makes a pod with its device; AttachPod comes with start or by the test.
func (n *Node) addPod(tb testing.TB, id string, m fixtures.Member) *Pod {
	tb.Helper()
	p := &Pod{Netns: NewNetns(tb), Node: n, Member: m, id: id}
	p.PlugIn(tb)
	n.pods = append(n.pods, p)
	for _, a := range []netip.Addr{m.V4, m.V6} {
		n.Routes[RangeOf(a)] = fwd.Route{Kind: fwd.RouteLocal}
	}
	return p
}

// PlugIn makes the pod's device pair and its node's routes to it.
func (p *Pod) PlugIn(tb testing.TB) {
	tb.Helper()
	gateways := []netip.Addr{fixtures.Addr("169.254.1.1"), fixtures.Addr("fe80::1")}
	p.Node.Do(tb, func() (err error) {
		if p.Pair, err = device.Pods.Create(device.PodSpec{Kind: device.Kind(testenv.DeviceKind()), ContainerID: p.id, IfName: "eth0", Netns: p.Path(), MTU: 1500}); err != nil {
			return err
		}
		if err := device.Pods.Open(p.Pair.HostIndex); err != nil {
			return err
		}
		host, ok, err := device.Pods.HostEnd(p.Pair.HostName)
		if err != nil || !ok {
			return fmt.Errorf("find device of %s: %v, %w", p.id, ok, err)
		}
		p.namespace = host.NetnsID + 1
		copy(p.Mac[:], p.Pair.PodMAC)
		copy(p.Gateway[:], p.Pair.HostMAC)
		if err := device.Pods.Configure(p.Path(), "eth0", device.PodConfig{
			MTU: 1500, Gateways: gateways, HostMAC: p.Pair.HostMAC,
			Addresses: []netip.Prefix{netip.PrefixFrom(p.V4, 32), netip.PrefixFrom(p.V6, 128)},
		}); err != nil {
			return err
		}
		for _, a := range []netip.Addr{p.V4, p.V6} {
			if err := errors.Join(neigh.SetPermanent(p.Pair.HostIndex, a, p.Pair.PodMAC),
				route.Add(route.Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: p.Pair.HostIndex})); err != nil {
				return err
			}
		}
		return nil
	})
}

func (n *Node) Endpoints() map[netip.Addr]fwd.Endpoint {
	all := map[netip.Addr]fwd.Endpoint{}
	for _, p := range n.pods {
		e := fwd.Endpoint{Interface: p.Pair.HostIndex, PodMAC: p.Mac, HostMAC: p.Gateway, Namespace: p.namespace}
		if p.macvlan {
			e.Parent, e.Underlay = n.Uplink.Index, true
		}
		all[p.V4], all[p.V6] = e, e
	}
	return all
}

// Start does what the agent does when it starts: open, fill the tables, attach, commit.
func (n *Node) Start(tb testing.TB, legacy bool) {
	tb.Helper()
	n.Do(tb, func() (err error) {
		n.Cfg.Netkit = testenv.DeviceKind() == string(device.Netkit)
		if n.Cfg.Macvlan && n.Cfg.HostNetns == 0 {
			if n.Cfg.HostNetns, err = sock.NetnsCookie(); err != nil {
				return err
			}
		}
		if n.borrowed == nil {
			n.D, err = harness.Borrow(n.Cfg, n.ProgramsHere(), fixtures.TestLog(tb))
			n.borrowed = n.D
		} else {
			n.D, err = harness.OpenVersion(tb, n.Cfg, n.Version, n.ProgramsHere())
		}
		if err != nil {
			return err
		}
		if legacy && !n.Cfg.Netkit { // kernels with netkit have tcx
			n.D.Objects.Tcx = false
		}
		if _, err := n.D.Endpoints.Sync(n.Endpoints()); err != nil {
			return err
		}
		if err := n.D.Tunnel.SetSources(n.V4, n.V6); err != nil {
			return err
		}
		if _, err := n.D.Routes.Sync(n.Routes); err != nil {
			return err
		}
		if err := n.D.Lease.Renew(time.Hour); err != nil {
			return err
		}
		if _, err := n.D.Uplinks.Sync(map[int]fwd.Uplink{n.Uplink.Index: {IPv4: n.V4, IPv6: n.V6, MAC: n.Mac, MTU: 1500}}); err != nil {
			return err
		}
		for _, p := range n.pods {
			if err := n.D.AttachPod(p.Pair.HostName, p.Pair.HostIndex); err != nil {
				return err
			}
		}
		attach := n.D.AttachUplink
		if n.Cfg.Macvlan {
			attach = n.D.AttachParent
		}
		if err := attach("eth0", n.Uplink.Index); err != nil {
			return err
		}
		if n.TunnelIndex != 0 {
			if err := n.D.AttachTunnel(vxlan.Name, n.TunnelIndex); err != nil {
				return err
			}
		}
		return n.D.Commit()
	})
}

// Dropped gives the drop counters that are not zero, by "program reason".
func (n *Node) Dropped(tb testing.TB) map[string]uint64 {
	tb.Helper()
	counted := map[string]uint64{}
	for key, d := range n.D.Dropped(tb) {
		counted[key] = d.Packets
	}
	return counted
}

// Forwarded counts the packets of both families that the node's stack has forwarded.
func (n *Node) Forwarded(tb testing.TB) uint64 {
	tb.Helper()
	var sum uint64
	n.Do(tb, func() error {
		proc, err := procfs.NewDefaultFS()
		if err != nil {
			return err
		}
		thread, err := proc.Thread(os.Getpid(), unix.Gettid())
		if err != nil {
			return err
		}
		v4, err4 := thread.Snmp()
		v6, err6 := thread.Snmp6()
		if err := errors.Join(err4, err6); err != nil {
			return err
		}
		sum = uint64(*v4.Ip.ForwDatagrams) + uint64(*v6.Ip6.OutForwDatagrams)
		return nil
	})
	return sum
}

// ProgramsHere are the programs that a node of a test's network may attach.
func (n *Node) ProgramsHere() []string {
	return slices.DeleteFunc(n.Cfg.Programs(), func(name string) bool {
		return n.TunnelIndex == 0 && slices.Contains(bpf.TunnelPrograms, name)
	})
}

// ExternalOnSwitch is the external host's address on the nodes' link, from which it opens connections.
func (n *Network) ExternalOnSwitch(family int) netip.Addr {
	if family == 4 {
		return fixtures.Addr("172.30.0.9")
	}
	return fixtures.Addr("fd00:172:30::9")
}
