package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// floodSize is the length and rate of floods. The campaign uses the documented limits of the network.
type floodSize struct {
	each      time.Duration // of one kind
	perSecond int           // packets, if the CPU can
	victims   int           // work items of each kind a second, of all victims together
	flags     []string      // of the agent
}

// floodVariable is the environment variable that requests floods of full size.
const floodVariable = "BEELINE_FLOODS"

// floodSizeOf returns the size for this run. In CI tables are small, so that short floods fill them; pending entries are
// the capacity of `nat_pending`.
func floodSizeOf(t *testing.T, pending int) floodSize {
	switch size := os.Getenv(floodVariable); size {
	case "":
		return floodSize{each: 700 * time.Millisecond, perSecond: 20_000, victims: 150,
			flags: []string{"--nat-max=16384", fmt.Sprintf("--nat-pending-max=%d", pending), "--conntrack-max=16384", "--nat-ports=40000-41023"}}
	case "full":
		return floodSize{each: time.Minute, perSecond: 100_000, victims: 1000}
	default:
		t.Fatalf("%s=%q: want full or empty", floodVariable, size)
		return floodSize{}
	}
}

// ClusterIPs of the test's other Services.
var (
	serviceOfSink          = []netip.Addr{netip.MustParseAddr("10.96.0.3"), netip.MustParseAddr("fd00:96::3")}
	serviceWithoutBackends = []netip.Addr{netip.MustParseAddr("10.96.0.4"), netip.MustParseAddr("fd00:96::4")}
	narrowIPv4             = netip.MustParsePrefix("198.19.0.0/16")
	narrowIPv6             = netip.MustParsePrefix("2001:2:0:1::/64")
	floodNodePort          = uint16(30090)
	floodNodePortOwn       = uint16(30091)
)

// narrowMTU is the MTU of the path to the narrow networks.
const narrowMTU = 1280

// floods is a service lab in which one pod floods while others work as victims.
type floods struct {
	*serviceLab
	size floodSize
	seed uint64
	// events counts calls of expectEvent.
	events uint16
	// mallory floods; caged floods and is denied all egress. near and other are victims. near is allowed ingress from
	// mallory only, so replies reach it by its conntrack entries. closed, on here, and sink, on the other node, are
	// denied all ingress.
	mallory, caged, near, other, closed, sink machine
}

func newFloods(t *testing.T, pending int) *floods {
	f := &floods{size: floodSizeOf(t, pending), seed: testenv.Seed(t)}
	f.serviceLab = newServiceLab(t, f.size.flags...)
	pod := func(name string, n *node) machine {
		p := f.addPod(n, name)
		return machine{name, p.Netns, p.Addresses}
	}
	f.mallory, f.caged, f.near = pod("mallory", f.here), pod("caged", f.here), pod("near", f.here)
	f.other, f.closed, f.sink = pod("other", f.here), pod("closed", f.here), pod("sink", f.nodes[1])
	var text bytes.Buffer
	for _, e := range []machine{f.mallory, f.caged, f.near, f.other, f.closed, f.sink, f.far, f.pod} {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %[1]s, namespace: default, labels: {app: %[1]s}}\nspec: {}\nstatus: {podIPs: [{ip: %[2]s}, {ip: '%[3]s'}]}\n",
			e.name, e.addresses[0], e.addresses[1])
	}
	for name, spec := range map[string]string{
		"near":   "{podSelector: {matchLabels: {app: near}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: mallory}}}]}], egress: [{}]}",
		"caged":  "{podSelector: {matchLabels: {app: caged}}, policyTypes: [Egress]}",
		"closed": "{podSelector: {matchExpressions: [{key: app, operator: In, values: [closed, sink]}]}, policyTypes: [Ingress]}",
	} {
		fmt.Fprintf(&text, "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: default}\nspec: %s\n", name, spec)
	}
	f.writeManifest("pods.yaml", text.Bytes())
	f.writeManifest("far.yaml", nodePorts(serviceYAML("far", serviceOfFar, "  type: NodePort", f.far), floodNodePort))
	f.writeManifest("own.yaml", nodePorts(serviceYAML("own", serviceOfNear, "  type: NodePort", f.pod), floodNodePortOwn))
	f.writeManifest("sink.yaml", serviceYAML("sink", serviceOfSink, "", f.sink))
	f.writeManifest("empty.yaml", serviceYAML("empty", serviceWithoutBackends, ""))
	for _, e := range []machine{f.far, f.pod, f.outside} {
		serveVictims(t, e, backendPort)
		serveVictims(t, e, otherPort)
		serveSlowly(t, e, slowPort)
	}
	f.routeToExternal()
	f.waitActive()
	return f
}

// nodePorts adds a nodePort to the ports of a Service.
func nodePorts(service []byte, port uint16) []byte {
	return bytes.ReplaceAll(service, fmt.Appendf(nil, "port: %d, protocol", servicePort), fmt.Appendf(nil, "port: %d, nodePort: %d, protocol", servicePort, port))
}

// routeToExternal routes the client networks to the external machine, which has all their addresses. Two narrow networks
// go to a device of here with a small MTU and no peer.
func (f *floods) routeToExternal() {
	f.t.Helper()
	narrow := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "narrow", MTU: narrowMTU}, PeerName: "narrow-end"}
	err := f.node.netns.Netlink(func(h *netlink.Handle) error {
		if err := h.LinkAdd(narrow); err != nil {
			return err
		}
		end, err := h.LinkByName(narrow.PeerName)
		if err != nil {
			return err
		}
		return errors.Join(h.LinkSetUp(end), h.LinkSetUp(narrow))
	})
	for i, network := range []netip.Prefix{testbed.ClientNetworkIPv4, testbed.ClientNetworkIPv6} {
		err = errors.Join(err, f.outside.netns.Netlink(func(h *netlink.Handle) error {
			lo, err := h.LinkByName("lo")
			if err != nil {
				return err
			}
			const local = 255 // the routing table of local addresses
			return h.RouteAdd(&netlink.Route{Dst: testbed.IPNet(network), LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: local})
		}), f.node.netns.Netlink(func(h *netlink.Handle) error {
			own := []netip.Prefix{narrowIPv4, narrowIPv6}[i]
			return errors.Join(h.RouteAdd(&netlink.Route{Dst: testbed.IPNet(network), Gw: f.outside.addresses[i].AsSlice()}),
				h.AddrAdd(narrow, &netlink.Addr{IPNet: testbed.IPNet(netip.PrefixFrom(own.Addr().Next(), own.Bits())), Flags: unix.IFA_F_NODAD}))
		}))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// waitActive waits until Services have backends and policies are enforced.
func (f *floods) waitActive() {
	f.t.Helper()
	for i, service := range serviceOfFar {
		for _, to := range []netip.AddrPort{
			netip.AddrPortFrom(service, servicePort), netip.AddrPortFrom(serviceOfNear[i], servicePort), netip.AddrPortFrom(f.node.addresses[i], floodNodePort),
		} {
			eventually(f.t, func() error { return askEcho(f.near.netns, to) })
		}
		to := netip.AddrPortFrom(f.far.addresses[i], backendPort)
		eventually(f.t, func() error {
			if dials(f.caged.netns, to) == nil {
				return errors.New("a pod without allowed egress can send")
			}
			return dials(f.other.netns, to)
		})
		probe := &victim{name: "other"}
		eventually(f.t, func() error {
			return f.other.netns.Do(func() error { return isRejected(probe, netip.AddrPortFrom(serviceWithoutBackends[i], servicePort)) })
		})
	}
}

// at returns the same port of some addresses.
func at(port uint16, all ...netip.Addr) (ends []netip.AddrPort) {
	for _, a := range all {
		ends = append(ends, netip.AddrPortFrom(a, port))
	}
	return ends
}

// victims are the pods and processes of the node that is flooded, with clients also the external clients of its ports.
func (f *floods) victims(clients bool) *victims {
	// Direct requests use another port than the Service's backend port: a client port that is connected to the Service
	// gets no direct reply from the backend.
	direct := append(at(otherPort, f.far.addresses...), at(backendPort, f.outside.addresses...)...)
	services := append(at(servicePort, serviceOfFar...), direct...)
	slow := at(slowPort, slices.Concat(f.far.addresses, f.outside.addresses)...)
	targets := map[string][]netip.AddrPort{f.near.name: services, f.other.name: services, f.node.name: direct}
	ends := []machine{f.near, f.other, f.node}
	if clients {
		targets[f.outside.name] = append(at(floodNodePort, f.node.addresses...), at(floodNodePortOwn, f.node.addresses...)...)
		ends = append(ends, f.outside)
	}
	every := time.Second * time.Duration(len(ends)) / time.Duration(f.size.victims)
	v := &victims{}
	for _, e := range ends {
		for name, work := range map[string]func(*victim, netip.AddrPort) error{"requests": asksOften, "connections": connects, "queries": queries} {
			v.all = append(v.all, &victim{name: name + " of " + e.name, netns: e.netns, targets: targets[e.name], work: work, every: every})
		}
	}
	const rarely = 100 * time.Millisecond
	v.all = append(v.all,
		&victim{name: "large queries of near", netns: f.near.netns, targets: services, work: queries, size: 4000, every: rarely}, // in fragments
		&victim{name: "slow pieces of other", netns: f.other.netns, targets: at(backendPort, f.outside.addresses...), work: f.sendsPieces(), every: rarely},
		&victim{name: "pings of other", netns: f.other.netns, targets: at(0, f.outside.addresses...), work: pings, every: rarely},
		&victim{name: "slow queries of near", netns: f.near.netns, targets: slow, work: waits, every: rarely},
		&victim{name: "slow queries of other", netns: f.other.netns, targets: slow, work: waits, every: rarely},
		&victim{name: "refusals of near", netns: f.near.netns, targets: at(servicePort, serviceWithoutBackends...), work: isRejected, every: rarely},
		&victim{name: "MTUs of other", netns: f.other.netns, targets: f.narrow(), work: learnsMTU, every: rarely})
	return v
}

// narrow returns so many addresses of the narrow networks that none is used twice.
func (f *floods) narrow() (all []netip.AddrPort) {
	const enough = 1 << 14
	a, b := narrowIPv4.Addr().Next(), narrowIPv6.Addr().Next() // the node's own
	for range enough {
		a, b = a.Next(), b.Next()
		all = append(all, netip.AddrPortFrom(a, closedPort), netip.AddrPortFrom(b, closedPort))
	}
	return all
}

// flood is one kind of flood, with proofs that it reaches its table.
type flood struct {
	name    string
	from    *flooder
	packets packets
	shows   []proof
}

// kinds are the floods of pods.
func (f *floods) kinds() []flood {
	mallory, caged := f.podFlooder(f.mallory), f.podFlooder(f.caged)
	from := func(of *flooder, family int) netip.AddrPort {
		return netip.AddrPortFrom(of.addresses[family], of.port())
	}
	syn := func(to func(of *flooder, family int) netip.AddrPort, varies varying) packets {
		return packets{func(of *flooder, family int) []byte { return of.syn(from(of, family), to(of, family)) }, sourcePort | sequence | varies}
	}
	udp := func(to func(of *flooder, family int) netip.AddrPort, varies varying) packets {
		return packets{func(of *flooder, family int) []byte { return of.udp(from(of, family), to(of, family), []byte("?")) }, sourcePort | varies}
	}
	fixed := func(port uint16, to []netip.Addr) func(*flooder, int) netip.AddrPort {
		return func(_ *flooder, family int) netip.AddrPort { return netip.AddrPortFrom(to[family], port) }
	}
	anyPort := func(to []netip.Addr) func(*flooder, int) netip.AddrPort {
		return func(of *flooder, family int) netip.AddrPort { return netip.AddrPortFrom(to[family], of.port()) }
	}
	external := func(of *flooder, family int) netip.AddrPort { return netip.AddrPortFrom(of.within(family), of.port()) }
	return []flood{
		{"TCP SYN to a Service", mallory, syn(fixed(servicePort, serviceOfSink), 0), []proof{leaves(most), full("nat_pending", nearly)}},
		{"TCP SYN to a pod", mallory, syn(anyPort(f.near.addresses), destinationPort), []proof{reachesNear, fullConntrackShare}},
		{"TCP SYN to the external network", mallory, syn(external, destinationPort|destinationHost), []proof{leaves(most), full("nat_pending", nearly)}},
		// The node has 25,536 ports of each family towards one server.
		{"TCP SYN to the one external server", mallory, packets{func(of *flooder, family int) []byte {
			return of.damagedSYN(from(of, family), netip.AddrPortFrom(f.outside.addresses[family], backendPort))
		}, sourcePort | sequence}, []proof{leaves(most), full("nat_pending", most)}},
		{"UDP to the external network", mallory, udp(external, destinationPort|destinationHost), []proof{leaves(most), full("nat_pending", nearly)}},
		{"UDP to the one external server", mallory, packets{func(of *flooder, family int) []byte {
			return of.damagedUDP(from(of, family), netip.AddrPortFrom(f.outside.addresses[family], backendPort))
		}, sourcePort}, []proof{leaves(most), full("nat_pending", nearly)}},
		{"UDP to a ClusterIP", mallory, udp(fixed(servicePort, serviceOfSink), 0), []proof{leaves(most), full("nat_pending", nearly)}},
		{"UDP to a NodePort", mallory, packets{func(of *flooder, family int) []byte {
			return of.damagedUDP(from(of, family), netip.AddrPortFrom(f.node.addresses[family], floodNodePort))
		}, sourcePort}, []proof{leaves(most), full("nat_pending", nearly)}},
		{"UDP under policies", mallory, udp(anyPort(f.near.addresses), destinationPort), []proof{reachesNear, fullConntrackShare}},
		{"UDP that policies drop", mallory, udp(anyPort(f.closed.addresses), destinationPort), []proof{dropped("ingress_policy")}},
		{"TCP SYN of a pod that may send nothing", caged, packets{func(of *flooder, family int) []byte {
			to := [...]netip.AddrPort{netip.AddrPortFrom(serviceOfFar[family], servicePort), external(of, family)}
			return of.syn(from(of, family), to[of.random.IntN(len(to))])
		}, sourcePort | sequence}, []proof{dropped("egress_policy")}},
		{"fragments", mallory, packets{func(of *flooder, family int) []byte {
			// Not to the targets of victims: the kernel limits the memory for incomplete packets of all senders
			// (ipfrag_high_thresh).
			narrow := [...]netip.Addr{narrowIPv4.Addr(), narrowIPv6.Addr()}
			to := [...]netip.AddrPort{
				netip.AddrPortFrom(f.sink.addresses[family], closedPort), netip.AddrPortFrom(serviceOfSink[family], servicePort),
				netip.AddrPortFrom(narrow[family].Next().Next(), closedPort),
			}[of.random.IntN(3)]
			ip := frame.IP{Source: of.addresses[family], Destination: to.Addr(), Protocol: unix.IPPROTO_UDP}
			data := frame.UDP(from(of, family), to, make([]byte, 56))
			return ip.Piece(data, 0, 32, uint16(of.random.Uint32())).Packet()
		}, sourcePort | fragmentID}, []proof{leaves(half)}},
		{"ICMP echo", mallory, packets{func(of *flooder, family int) []byte {
			return of.echo(of.within(family))
		}, destinationHost | identifier}, []proof{leaves(most), full("nat", nearly)}},
		{"ICMP echo to the one external server", mallory, packets{func(of *flooder, family int) []byte {
			return of.echo(f.outside.addresses[family])
		}, identifier}, []proof{leaves(most)}},
		{"what is refused", mallory, udp(fixed(servicePort, serviceWithoutBackends), 0), []proof{dropped("icmp_ratelimited")}},
		{"what is too big", mallory, packets{func(of *flooder, family int) []byte {
			to := [...]netip.Prefix{narrowIPv4, narrowIPv6}
			ip := frame.IP{Source: of.addresses[family], Destination: to[family].Addr().Next().Next(), Protocol: unix.IPPROTO_UDP, Whole: true}
			ip.Payload = frame.UDP(from(of, family), netip.AddrPortFrom(ip.Destination, of.port()), make([]byte, narrowMTU))
			return ip.Packet()
		}, sourcePort | destinationPort}, []proof{tooBig}},
	}
}

// outsideKinds are the floods of the external machine, whose packets have many sources.
func (f *floods) outsideKinds(acceleration string) []flood {
	var to net.HardwareAddr
	if err := f.node.netns.Do(func() error {
		uplink, err := net.InterfaceByName(testbed.Uplink)
		if err == nil {
			to = uplink.HardwareAddr
		}
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	outside := f.flooder(f.outside, testbed.Uplink, to)
	from := func(of *flooder, family int) netip.AddrPort { return netip.AddrPortFrom(of.within(family), of.port()) }
	nodePort := func(of *flooder, family int) netip.AddrPort {
		ports := [...]uint16{floodNodePort, floodNodePortOwn}
		return netip.AddrPortFrom(f.node.addresses[family], ports[of.random.IntN(len(ports))])
	}
	forwarded := uint64(some)
	if acceleration == "xdp" {
		forwarded = few // the ring of a veth drops the rest
	}
	return []flood{
		{"TCP SYN to a NodePort, " + acceleration, outside, packets{func(of *flooder, family int) []byte {
			return of.damagedSYN(from(of, family), nodePort(of, family))
		}, sourceHost | sourcePort | sequence}, []proof{leaves(forwarded), full("nat_pending", nearly)}},
		{"UDP to a NodePort, " + acceleration, outside, packets{func(of *flooder, family int) []byte {
			return of.damagedUDP(from(of, family), nodePort(of, family))
		}, sourceHost | sourcePort}, []proof{leaves(forwarded), full("nat_pending", nearly)}},
		{"UDP of one client to a NodePort, " + acceleration, outside, packets{func(of *flooder, family int) []byte {
			return of.damagedUDP(netip.AddrPortFrom(of.addresses[family], of.port()), nodePort(of, family))
		}, sourcePort}, []proof{leaves(forwarded), full("nat_pending", nearly)}},
		{"TCP SYN to a pod, " + acceleration, outside, packets{func(of *flooder, family int) []byte {
			return of.damagedSYN(from(of, family), netip.AddrPortFrom(f.near.addresses[family], of.port()))
		}, sourceHost | sourcePort | destinationPort | sequence}, []proof{dropped("ingress_policy")}},
		{"fragments, " + acceleration, outside, packets{func(of *flooder, family int) []byte {
			ip := frame.IP{Source: of.within(family), Destination: f.near.addresses[family], Protocol: unix.IPPROTO_UDP}
			data := frame.UDP(netip.AddrPortFrom(ip.Source, of.port()), netip.AddrPortFrom(ip.Destination, closedPort), make([]byte, 56))
			return ip.Piece(data, 0, 32, uint16(of.random.Uint32())).Packet()
		}, sourceHost | sourcePort | fragmentID}, []proof{dropped("ingress_policy"), filled("fragments", 1024)}},
	}
}

// podFlooder opens a flooder in a pod of here, until the test ends.
func (f *floods) podFlooder(of machine) *flooder {
	f.t.Helper()
	var to net.HardwareAddr
	all, err := f.here.api().Endpoints(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range all {
		if e.Pod.Name == of.name {
			if to, err = net.ParseMAC(e.HostMAC); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	return f.flooder(of, podInterface, to)
}

func (f *floods) flooder(of machine, device string, to net.HardwareAddr) *flooder {
	f.t.Helper()
	made, err := newFlooder(of, device, to, f.seed)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(made.close)
	return made
}

// run floods with one kind, or none, until each victim has worked meanwhile. It expects that all work of the victims
// succeeded, and that the flood reached its table.
func (f *floods) run(t *testing.T, v *victims, kind flood, more ...packets) {
	v.take()
	if kind.from == nil {
		time.Sleep(f.size.each)
		v.waitDone()
	} else {
		f.flood(t, v, kind, more...)
	}
	done, repeated := v.expect(t)
	if done == 0 {
		t.Error("the victims did nothing")
	}
	t.Logf("victims did %d work items and repeated %d queries", done, repeated)
}

func (f *floods) flood(t *testing.T, v *victims, kind flood, more ...packets) {
	before := f.look(t)
	ring, backlog := f.notReceived(t)
	running := kind.from.start(f.size.perSecond, append([]packets{kind.packets}, more...)...)
	defer func() { // also when the test fails here
		sent, rate, err := running.finish()
		if err != nil {
			t.Error(err)
		}
		ringAfter, backlogAfter := f.notReceived(t)
		t.Logf("%d packets, %d a second; %d dropped by a full ring and %d by a full backlog", sent, rate, ringAfter-ring, backlogAfter-backlog)
	}()
	time.Sleep(f.size.each)
	f.expectShown(t, kind.shows, before, &running.sent)
	f.expectEvent(t)
	v.waitDone()
}

// expectEvent has a victim send a packet that policies drop, and expects its flow event.
func (f *floods) expectEvent(t *testing.T) {
	f.events++
	to := netip.AddrPortFrom(f.closed.addresses[0], 20000+f.events)
	g := &policyLab{external: f.external}
	eventually(t, func() error {
		if err := sendUDP(f.near.netns, to, []byte("?")); err != nil {
			return err
		}
		list := g.flows("--from", "default/near", "--to", "default/closed", "--last", "0")
		if slices.ContainsFunc(list.Flows, func(e agentapi.Flow) bool { return e.Destination.Port == to.Port() && e.Reason != "" }) {
			return nil
		}
		return fmt.Errorf("no flow event of the dropped packet to %s", to)
	})
}

// One pod floods in all ways: the other pods of its node and the node lose no request, no connection and no query.
func TestFloodsOfPods(t *testing.T) {
	f := newFloods(t, 2048) // fewer than the ports towards one server, so that a flood to one can fill it
	v := f.victims(false)
	v.start()
	defer func() {
		v.finish()
		v.expect(t)
	}()
	t.Run("nothing", func(t *testing.T) { f.run(t, v, flood{}) })
	var all []packets
	for _, kind := range f.kinds() {
		t.Run(kind.name, func(t *testing.T) { f.run(t, v, kind) })
		if kind.from.name == f.mallory.name {
			all = append(all, kind.packets)
		}
	}
	t.Run("all at once", func(t *testing.T) {
		f.run(t, v, flood{from: f.podFlooder(f.mallory), packets: all[0], shows: []proof{leaves(some), full("nat_pending", half)}}, all[1:]...)
	})
}

// An external machine floods ports of a node: pods, the node and other clients of the ports lose nothing.
func TestFloodsFromOutside(t *testing.T) {
	f := newFloods(t, 8192) // more than the ports towards one backend, so that a flood uses all ports too
	f.carryXDP()
	for _, acceleration := range []string{"xdp", "tc"} {
		f.restart(f.here, current(t), slices.Concat(f.size.flags, []string{"--services=ebpf", "--nodeport-acceleration=" + acceleration})...)
		f.waitReady(f.here)
		f.waitActive()
		if got := f.acceleration(); got != acceleration {
			t.Fatalf("NodePorts are forwarded at %s, want %s", got, acceleration)
		}
		v := f.victims(true)
		v.start()
		t.Run("nothing, "+acceleration, func(t *testing.T) { f.run(t, v, flood{}) })
		for _, kind := range f.outsideKinds(acceleration) {
			t.Run(kind.name, func(t *testing.T) { f.run(t, v, kind) })
		}
		v.finish()
		v.expect(t)
	}
}

// carryXDP makes the lab's link carry packets that XDP forwards: devices compute checksums, as between machines, and
// the switch accepts the packets of the node's XDP (see packetgen.PassOnWire).
func (f *floods) carryXDP() {
	f.t.Helper()
	for _, n := range f.nodes {
		if err := n.Do(func() error { return testenv.FinishChecksums(testbed.Uplink) }); err != nil {
			f.t.Fatal(err)
		}
	}
	pass, err := packetgen.PassOnWire(f.lab.Switch(), f.lab.SwitchPort(f.here.Node))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { pass.Close() })
}

// acceleration returns the active NodePort acceleration of here.
func (f *floods) acceleration() string {
	f.t.Helper()
	for _, c := range f.status(f.here).Choices {
		if c.Name == "nodeport acceleration" {
			return c.Selected
		}
	}
	return ""
}
