package adversary

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/adversary/frame"
	"github.com/beeline-cni/beeline/test/netlab"
)

// The second uplink of the first node, the network on it, and a VLAN there.
const (
	secondUplink = "second"
	secondVLAN   = 7
)

var (
	secondNode   = []netip.Prefix{netip.MustParsePrefix("198.18.51.1/24"), netip.MustParsePrefix("2001:db8:51::1/64")}
	secondRouter = []netip.Prefix{netip.MustParsePrefix("198.18.51.254/24"), netip.MustParsePrefix("2001:db8:51::fe/64")}
	taggedNode   = []netip.Prefix{netip.MustParsePrefix("198.18.7.1/24"), netip.MustParsePrefix("2001:db8:7::1/64")}
)

// Kinds of pods with addresses of a pool on either uplink.
const (
	firstMacvlan  podKind = "first-macvlan"
	firstRouted   podKind = "first-routed"
	secondMacvlan podKind = "second-macvlan"
	secondRouted  podKind = "second-routed"
	taggedMacvlan podKind = "tagged-macvlan"
)

// twoUplinks is a lab whose first node has pods of pools on two uplinks.
type twoUplinks struct {
	*lab
	// router writes frames to the second uplink. Its capture is that of the wire there.
	router *pod
	// vlans says that the kernel has VLAN devices, and so the pools of VLANs have pods.
	vlans bool
}

func newTwoUplinks(t *testing.T) *twoUplinks {
	l := &twoUplinks{lab: newLab(t, "--flows=off", wholeLink, "--uplink="+testbed.Uplink+","+secondUplink)}
	l.addSecondUplink()
	n := l.nodes[0]
	pools := poolYAML(firstMacvlan, n, "", n.Addresses, 150) + poolYAML(firstRouted, n, "", n.Addresses, 160) +
		poolYAML(secondMacvlan, n, "uplink: second, ", secondNode, 10) + poolYAML(secondRouted, n, "uplink: second, ", secondNode, 20)
	victims := []podKind{secondMacvlan, secondRouted}
	if l.vlans {
		pools += poolYAML(taggedMacvlan, n, fmt.Sprintf("uplink: second, vlan: %d, ", secondVLAN), taggedNode, 10)
		victims = append(victims, taggedMacvlan)
	}
	l.write("ippools.yaml", []byte(pools))
	eventually(t, func() error {
		pools, err := netlab.API(n.Node).IPPools(t.Context())
		if err == nil && len(pools) < len(victims)+2 {
			err = fmt.Errorf("the node knows %d IPPools", len(pools))
		}
		return err
	})
	for _, kind := range []podKind{firstMacvlan, firstRouted} {
		l.addPodOf(kind, n, podName(attackerApp, kind), attackerApp)
		l.addPodOf(kind, n, podName(unselected, kind), unselected)
	}
	for _, kind := range victims {
		l.addPodOf(kind, n, podName(isolated, kind), isolated)
		l.addPodOf(kind, n, podName(unselected, kind), unselected)
	}
	l.writePods()
	l.waitPolicies()
	return l
}

// addSecondUplink joins the first node and a network namespace.
func (l *twoUplinks) addSecondUplink() {
	t, n := l.t, l.nodes[0]
	made, err := l.lab.lab.NewPodNetns(t.Context(), l.nodes[1].Node, "router")
	if err != nil {
		t.Fatal(err)
	}
	addresses := func(h *netlink.Handle, device string, all []netip.Prefix) error {
		link, err := h.LinkByName(device)
		for _, a := range all {
			if err == nil {
				err = h.AddrAdd(link, &netlink.Addr{IPNet: testbed.IPNet(a), Flags: unix.IFA_F_NODAD})
			}
		}
		if err == nil {
			err = h.LinkSetUp(link)
		}
		return err
	}
	err = made.Do(func() error {
		far, err := netns.GetFromPath(n.Path)
		if err != nil {
			return err
		}
		defer far.Close()
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wire"}, PeerName: secondUplink, PeerNamespace: netlink.NsFd(far)})
	})
	if err == nil {
		err = errors.Join(made.Netlink(func(h *netlink.Handle) error { return addresses(h, "wire", secondRouter) }),
			n.Netlink(func(h *netlink.Handle) error { return addresses(h, secondUplink, secondNode) }))
	}
	if err != nil {
		t.Fatal(err)
	}
	l.router = &pod{Pod: made, app: external, node: n}
	for _, a := range secondRouter {
		made.Addresses = append(made.Addresses, a.Addr())
	}
	l.router.mac, l.router.host = macAt(t, made.Netns, "wire"), macAt(t, n.Netns, secondUplink)
	l.router.capture = startCapture(t, "the wire of the second uplink", made.Netns, "wire")
	l.captures = append(l.captures, l.router.capture)
	l.router.senders = openSenders(t, made.Netns, "wire")

	err = made.Netlink(func(h *netlink.Handle) error {
		wire, err := h.LinkByName("wire")
		if err != nil {
			return err
		}
		return h.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "probe", ParentIndex: wire.Attrs().Index}, VlanId: 4000})
	})
	if l.vlans = err == nil; err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatal(err)
	}
}

func macAt(t *testing.T, in testbed.Netns, device string) (mac net.HardwareAddr) {
	t.Helper()
	err := in.Do(func() error {
		link, err := net.InterfaceByName(device)
		if err == nil {
			mac = link.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// of is the pod of an app and kind on the first node.
func (l *twoUplinks) of(app string, kind podKind) *pod { return l.pods[podName(app, kind)+"-1"] }

// acrossUplinks are what a pod with an address of one uplink's pool writes to get into the other uplink, or out of it.
func acrossUplinks(l *twoUplinks) []attack {
	from := func(s *attempt, mac net.HardwareAddr, source netip.Addr, tags ...uint16) (frames [][]byte) {
		for _, to := range []netip.Addr{s.to(), secondRouter[s.family].Addr()} {
			f := frame.UDP(netip.AddrPortFrom(source, s.port), netip.AddrPortFrom(to, markerPort), s.token)
			ip := frame.IP{Source: source, Destination: to, Protocol: unix.IPPROTO_UDP, Payload: f}
			for _, next := range []net.HardwareAddr{s.attacker.host, s.victim.mac, l.router.mac, l.router.host} {
				if whole := frame.Ethernet(next, mac, frame.EtherType(source), ip.Packet()); len(tags) > 0 {
					frames = append(frames, frame.Tagged(whole, vlanTag, tags...), frame.Tagged(whole, serviceTag, tags...))
				} else {
					frames = append(frames, whole)
				}
			}
		}
		return frames
	}
	other := func(*attempt) *pod { return l.of(unselected, secondRouted) }
	return []attack{
		{name: "source of a pod of the other uplink", kind: forged, frames: func(s *attempt) [][]byte {
			return slices.Concat(from(s, s.attacker.mac, other(s).Addresses[s.family]), from(s, s.attacker.mac, s.to()))
		}},
		{name: "source of the other uplink's network", kind: forged, frames: func(s *attempt) [][]byte {
			return slices.Concat(from(s, s.attacker.mac, secondRouter[s.family].Addr()), from(s, s.attacker.mac, secondNode[s.family].Addr()), from(s, s.attacker.mac, s.addr("198.18.51.77", "2001:db8:51::77")))
		}},
		{name: "address and MAC of a pod of the other uplink", kind: forged, frames: func(s *attempt) [][]byte {
			return slices.Concat(from(s, s.victim.mac, s.to()), from(s, other(s).mac, other(s).Addresses[s.family]), from(s, l.router.mac, secondRouter[s.family].Addr()))
		}},
		{name: "VLANs of the other uplink", kind: forged, frames: func(s *attempt) [][]byte {
			return slices.Concat(from(s, s.attacker.mac, s.from(), secondVLAN), from(s, s.attacker.mac, s.from(), 0, secondVLAN), from(s, s.victim.mac, s.to(), secondVLAN),
				from(s, s.attacker.mac, s.addr("198.18.7.77", "2001:db8:7::77"), secondVLAN))
		}},
	}
}

// fromOtherWire are what a host on one uplink writes with what belongs to the other one.
func fromOtherWire(l *twoUplinks) []attack {
	write := func(s *attempt, mac net.HardwareAddr, source netip.Addr, tags ...uint16) []byte {
		f := frame.UDP(netip.AddrPortFrom(source, s.port), netip.AddrPortFrom(s.to(), markerPort), s.token)
		whole := frame.Ethernet(s.attacker.host, mac, frame.EtherType(source), frame.IP{Source: source, Destination: s.to(), Protocol: unix.IPPROTO_UDP, Payload: f}.Packet())
		if len(tags) > 0 {
			whole = frame.Tagged(whole, vlanTag, tags...)
		}
		return whole
	}
	return []attack{
		{name: "addresses of pods of the other uplink", kind: forged, frames: func(s *attempt) (frames [][]byte) {
			for _, kind := range []podKind{firstMacvlan, firstRouted} {
				p := l.of(attackerApp, kind)
				frames = append(frames, write(s, s.attacker.mac, p.Addresses[s.family]), write(s, p.mac, p.Addresses[s.family]),
					write(s, s.attacker.mac, p.Addresses[s.family], 0), write(s, s.attacker.mac, p.Addresses[s.family], secondVLAN))
			}
			return frames
		}},
		{name: "the node's address on the other uplink", kind: forged, frames: one(func(s *attempt) []byte {
			return write(s, s.attacker.mac, s.nodes[0].Addresses[s.family].Addr())
		})},
		{name: "a VLAN without a pool", kind: forged, frames: func(s *attempt) [][]byte {
			return [][]byte{write(s, s.attacker.mac, s.from(), secondVLAN+1), write(s, s.attacker.mac, s.from(), 0, secondVLAN+1), write(s, s.attacker.mac, s.from(), secondVLAN, secondVLAN+1)}
		}},
	}
}

// Pods of pools on two uplinks of a node do not get frames into the other uplink with what belongs there, nor does the wire of one uplink get
// frames to pods with what belongs to the other.
func TestTwoUplinks(t *testing.T) {
	l := newTwoUplinks(t)
	victims := []podKind{secondMacvlan, secondRouted}
	if l.vlans {
		victims = append(victims, taggedMacvlan)
	}
	try := func(t *testing.T, a attack, attacker, victim *pod) {
		t.Helper()
		for family := range podPrefixLengths {
			s := l.attempt(attacker, victim, family)
			if err := a.try(s, false); err != nil {
				t.Errorf("%s to %s, IPv%d: %v", attacker.Name, victim.Name, 4+2*family, err)
			}
		}
	}
	for _, a := range acrossUplinks(l) {
		t.Run(a.name, func(t *testing.T) {
			for _, attacker := range []podKind{firstMacvlan, firstRouted} {
				for _, victim := range victims {
					try(t, a, l.of(attackerApp, attacker), l.of(isolated, victim))
					try(t, a, l.of(attackerApp, attacker), l.of(unselected, victim))
				}
			}
		})
	}
	for _, a := range fromOtherWire(l) {
		t.Run("from the wire, "+a.name, func(t *testing.T) {
			for _, victim := range append(slices.Clone(victims), firstMacvlan, firstRouted) {
				try(t, a, l.router, l.of(unselected, victim))
			}
		})
	}
}
