package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// The second uplink of a node, its router, and an external host that each router has itself.
const secondUplink = "second"

var (
	secondSubnets = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:51::/64")}
	secondNode    = []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:51::1")}
	secondRouter  = []netip.Addr{netip.MustParseAddr("198.51.100.254"), netip.MustParseAddr("2001:db8:51::fe")}
	beyond        = []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:113::9")}
)

// at gives the machine these addresses on a device.
func (m machine) at(t *testing.T, device string, addresses []netip.Addr, bits ...int) {
	t.Helper()
	err := m.netns.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(device)
		if err != nil {
			return err
		}
		for i, a := range addresses {
			err = errors.Join(err, h.AddrAdd(link, &netlink.Addr{IPNet: testbed.IPNet(netip.PrefixFrom(a, bits[i])), Flags: unix.IFA_F_NODAD}))
		}
		return errors.Join(err, h.LinkSetUp(link))
	})
	if err != nil {
		t.Fatalf("%s: %v", m.name, err)
	}
}

// via gives the machine routes by routers.
func (m machine) via(t *testing.T, to []netip.Prefix, routers []netip.Addr, metric int) {
	t.Helper()
	err := m.netns.Netlink(func(h *netlink.Handle) (err error) {
		for i, p := range to {
			err = errors.Join(err, h.RouteReplace(&netlink.Route{Dst: testbed.IPNet(p), Gw: routers[i].AsSlice(), Priority: metric}))
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", m.name, err)
	}
}

// addSecondUplink gives the first node a second uplink with a router on it. Both uplinks have default routes, that of the first one comes first.
// The external machine, the router and the other node have the external host's addresses themselves: who replies shows the router that was
// taken.
func (w *external) addSecondUplink() (router machine) {
	w.t.Helper()
	pod := w.newPod(w.nodes[2], "router")
	router = machine{"second router", pod.Netns, secondRouter}
	err := router.netns.Do(func() error {
		own, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		node, err := netns.GetFromPath(w.here.Netns.Path)
		if err != nil {
			return err
		}
		defer node.Close()
		return errors.Join(netlink.LinkSetUp(own),
			netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wire"}, PeerName: secondUplink, PeerNamespace: netlink.NsFd(node)}))
	})
	if err != nil {
		w.t.Fatal(err)
	}
	router.at(w.t, "wire", secondRouter, 24, 64)
	w.node.at(w.t, secondUplink, secondNode, 24, 64)
	if err := w.here.WriteSysctl("net/ipv4/conf/"+secondUplink+"/rp_filter", "1"); err != nil {
		w.t.Fatal(err)
	}
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	w.node.via(w.t, all, w.outside.addresses, 100)
	w.node.via(w.t, all, secondRouter, 2000)
	for _, m := range []machine{w.outside, router, w.peer} {
		m.at(w.t, "lo", beyond, 32, 128)
	}
	w.peer.via(w.t, secondSubnets, w.node.addresses, 0) // with manifests, the other node does not know the claims
	return router
}

// routedPool is the manifest of a pool with gateways, whose pods get one address of each family.
func routedPool(name string, subnets []netip.Prefix, gateways []netip.Addr, host int) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "apiVersion: networking.beeline.dev/v1alpha1\nkind: IPPool\nmetadata: {name: %s}\nspec:\n  probe: false\n  device: %s\n  gateways: ['%s', '%s']\n", name, testenv.DeviceKind(), gateways[0], gateways[1])
	for _, list := range []string{"subnets", "ranges"} {
		fmt.Fprintf(&text, "  %s:\n", list)
		for _, p := range subnets {
			if list == "subnets" {
				fmt.Fprintf(&text, "  - '%s'\n", p.Masked())
				continue
			}
			bytes := p.Masked().Addr().AsSlice()
			bytes[len(bytes)-1] = byte(host)
			a, _ := netip.AddrFromSlice(bytes)
			fmt.Fprintf(&text, "  - '%s'\n", a)
		}
	}
	return text.Bytes()
}

// ip runs ip(8).
func (w *external) ip(in testbed.Netns, args ...string) string {
	w.t.Helper()
	output, err := in.Output(w.t.Context(), "ip", args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(output)
}

// sourceRules counts the node's rules and routes of IPPools.
func (w *external) sourceRules() (rules, routes int) {
	w.t.Helper()
	for _, family := range []string{"-4", "-6"} {
		text := w.ip(w.here.Netns, family, "rule", "list")
		for _, line := range strings.Split(text, "\n") {
			if priority, _, _ := strings.Cut(line, ":"); priority >= "191" && priority <= "197" && len(priority) == 3 {
				rules++
			}
		}
		text = w.ip(w.here.Netns, family, "route", "list", "table", "all")
		routes += strings.Count(text, " table 190")
	}
	return rules, routes
}

// Pods of two pools on two uplinks send by the gateways of their pool, on its uplink, whatever the default route of the node is. Nodes, pods and
// Services of the cluster are reached as before.
func TestPoolsOfTwoUplinks(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"ebpf": nil, "kernel": {"--routing=kernel"}, "tunnel": {tunnelled},
	} {
		t.Run(name, func(t *testing.T) { testPoolsOfTwoUplinks(t, flags...) })
	}
}

// tunnelled is the flag by which pods of other nodes are behind tunnels. With manifests, these nodes do not know the claims, and drop what comes
// by a tunnel from pods of IPPools.
const tunnelled = "--tunnel=vxlan"

func testPoolsOfTwoUplinks(t *testing.T, flags ...string) {
	b := newServiceLab(t, flags...)
	t.Cleanup(func() {
		if drops, err := b.here.api().Drops(context.Background()); t.Failed() {
			t.Logf("drops: %+v, %v", drops, err)
		}
	})
	router := b.addSecondUplink()
	behindFirst, behindSecond, behindPeer := machine{"host behind the first router", b.outside.netns, beyond}, machine{"host behind the second router", router.netns, beyond}, machine{"host behind the other node", b.peer.netns, beyond}
	b.writeManifest("first.yaml", routedPool("first", b.here.Addresses, b.outside.addresses, 200))
	b.writeManifest("second.yaml", routedPool("second", secondSubnets, secondRouter, 200))
	first, second := b.addNamedPool(b.here, "first", "first"), b.addNamedPool(b.here, "second", "second")

	reach := func() {
		t.Helper()
		b.expect(first, behindFirst, first)
		b.expect(second, behindSecond, second)
		b.expect(router, second, router)
		b.expect(b.pod, behindFirst, b.node)
		b.expect(b.node, behindFirst, b.node)
	}
	reach()
	for _, other := range []machine{b.node, b.peer, b.pod, b.far, first} {
		if slices.Contains(flags, tunnelled) && (other.name == b.peer.name || other.name == b.far.name) {
			continue
		}
		b.expect(second, other, second)
		if other.name == b.far.name { // without an API server, other nodes take the pod for an external host
			b.expect(other, second, b.peer)
			continue
		}
		b.expect(other, second, other)
	}
	serveName(t, b.far, backendPort)
	serveName(t, behindSecond, backendPort)
	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, "", b.far))
	for _, a := range serviceOfFar {
		if !slices.Contains(flags, tunnelled) {
			b.expectReply(second, netip.AddrPortFrom(a, servicePort), b.far)
		}
	}
	// The backend is an external host: what the datapath translates takes the same routes.
	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, "", behindSecond))
	for _, a := range serviceOfFar {
		to := netip.AddrPortFrom(a, servicePort)
		b.expectReply(second, to, behindSecond)
		eventually(t, func() error {
			if got, err := fetchOutside(second, to); err != nil || got != behindSecond.name {
				return fmt.Errorf("packet by packet to %s: reply of %q, %w", to, got, err)
			}
			return nil
		})
	}

	// The gateways of a pool change.
	b.writeManifest("first.yaml", routedPool("first", b.here.Addresses, b.peer.addresses, 200))
	eventually(t, func() error { return takesRouter(first, behindPeer) })
	b.expect(first, behindPeer, first)
	b.expect(second, behindSecond, second)
	b.writeManifest("first.yaml", routedPool("first", b.here.Addresses, b.outside.addresses, 200))
	eventually(t, func() error { return takesRouter(first, behindFirst) })

	// The agent is away, and another one starts.
	rules, routes := b.sourceRules()
	b.kill(b.here)
	reach()
	b.start(b.here, current(t), append([]string{"--services=ebpf"}, flags...)...)
	b.waitReady(b.here)
	reach()
	if again, routesAgain := b.sourceRules(); again != rules || routesAgain != routes || rules == 0 || routes == 0 {
		t.Errorf("%d rules and %d routes of pools, before the restart %d and %d", again, routesAgain, rules, routes)
	}

	// A pool is deleted while its pod lives: the node answers for it where it did.
	b.writeManifest("second.yaml", nil)
	eventually(t, func() error {
		if now, _ := b.sourceRules(); now >= rules {
			return fmt.Errorf("%d rules of pools, with the deleted one %d", now, rules)
		}
		return nil
	})
	b.ip(router.netns, "neigh", "flush", "all")
	b.expect(router, second, router)
	b.expect(first, behindFirst, first)

	if err := b.terminate(b.here); err != nil {
		t.Error(err)
	}
	p := current(t)
	args := append([]string{"uninstall", "--force", "--state-dir", b.here.stateDir(), "--bpffs", b.here.BPFFS}, newHost(t, p).flags()...)
	if output, err := b.here.Output(t.Context(), p.Agent(), args...); err != nil || !strings.Contains(string(output), "routes and routing rules of IPPools") {
		t.Errorf("uninstall: %s, %v", output, err)
	}
	if rules, routes := b.sourceRules(); rules != 0 || routes != 0 {
		t.Errorf("%d rules and %d routes of pools after uninstall", rules, routes)
	}
}

// takesRouter reports an error unless the client reaches the host with the same addresses behind one router.
func takesRouter(client, host machine) error {
	for _, a := range host.addresses {
		echo, err := externalEcho(host.netns, a)
		if err != nil {
			return err
		}
		defer echo.Close()
		socket, err := externalDial(client.netns, echo)
		if err != nil {
			return err
		}
		defer socket.Close()
		_ = socket.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if seen, _, err := externalRequest(socket, 1); err != nil || seen != client.addresses[0] && seen != client.addresses[1] {
			return fmt.Errorf("%s to %s of the %s: source %s, %w", client.name, a, host.name, seen, err)
		}
	}
	return nil
}

// After its IPPool was deleted, a pod of a VLAN is reached there as before, also when the agent starts again.
func TestPodOfDeletedVLANPool(t *testing.T) {
	t.Parallel()
	w := newExternal(t)
	outside := w.inVLAN(w.outside, 7, 1)
	w.inVLAN(w.node, 7, 2) // the node resolves neighbours for its pod
	w.writeManifest("seven.yaml", []byte(vlanPool("seven", testenv.DeviceKind(), 7, 10, 19)))
	pod := w.addNamedPool(w.here, "seven", "seven")
	reach := func() {
		t.Helper()
		w.ip(outside.netns, "neigh", "flush", "all")
		w.expect(outside, pod, outside)
		w.expect(pod, outside, pod)
	}
	reach()
	w.writeManifest("seven.yaml", nil)
	eventually(t, func() error {
		pools, err := w.here.api().IPPools(t.Context())
		if err == nil && len(pools) > 0 {
			err = fmt.Errorf("IPPools %v", pools)
		}
		return err
	})
	w.kill(w.here)
	w.start(w.here, current(t))
	w.waitReady(w.here)
	reach()
	w.writeManifest("node3.yaml", []byte(vlanPool("eight", "macvlan", 8, 10, 19))) // a reconciliation
	eventually(t, func() error {
		pools, err := w.here.api().IPPools(t.Context())
		if err == nil && len(pools) == 0 {
			err = errors.New("no IPPool")
		}
		return err
	})
	reach()
}

// TestNodeChangesMAC gives a node's uplink another MAC address, as a replaced network card does. The other node resolves
// it without a Node update, and connections continue. The time that this takes is logged, not tested.
func TestNodeChangesMAC(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	p := c.addPods()
	streams := c.startStreams([2]*testbed.Pod{p.a, p.far})
	changed := net.HardwareAddr{0x02, 0, 0, 0, 0x77, 0x42}
	changeLink(t, c.nodes[1].Netns, testbed.Uplink, func(h *netlink.Handle, l netlink.Link) error {
		return h.LinkSetHardwareAddr(l, changed)
	})
	begin := time.Now()
	c.waitStatus(c.nodes[0], func(s *agentapi.Status) error {
		if len(s.Nodes) != 1 || s.Nodes[0].MAC != changed.String() {
			return fmt.Errorf("other nodes: %+v", s.Nodes)
		}
		return nil
	})
	noticed := time.Since(begin)
	streams.waitProgress()
	t.Logf("the other node resolves it after %s, the streams continue after %s", noticed.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	for _, pair := range [][2]*testbed.Pod{{p.a, p.far}, {p.far, p.b}} {
		if err := c.reach(pair[0], pair[1]); err != nil {
			t.Error(err)
		}
	}
	streams.finish()
}

// absence is longer than the lease of the MAC addresses in `routes` (30 s, see docs/architecture.md).
const absence = 32 * time.Second

// TestLongAbsence leaves the nodes without agents until the lease expires. The kernel then resolves next hops, no
// packet is lost, and the node's new MAC address is found without an agent.
func TestLongAbsence(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	p := c.addPods()
	traffic := c.startTraffic([2]*testbed.Pod{p.a, p.far})
	for _, n := range c.nodes {
		c.kill(n)
	}
	time.Sleep(absence)
	traffic.waitProgress()
	traffic.finish()

	changeLink(t, c.nodes[1].Netns, testbed.Uplink, func(h *netlink.Handle, l netlink.Link) error {
		return h.LinkSetHardwareAddr(l, net.HardwareAddr{0x02, 0, 0, 0, 0x77, 0x43})
	})
	eventually(t, func() error { return c.reach(p.a, p.far) })
	traffic = c.startTraffic([2]*testbed.Pod{p.a, p.far})
	for _, n := range c.nodes {
		c.start(n, current(t))
		c.waitReady(n)
	}
	traffic.waitProgress()
	traffic.finish()
}
