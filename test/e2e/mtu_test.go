package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// TestMTUFollowsUplink raises and lowers the uplinks' MTU under traffic: existing and new pods get it at both ends of
// their devices, without what encryption adds, and connections continue.
func TestMTUFollowsUplink(t *testing.T) {
	t.Parallel()
	plain := func(routing string) func(t *testing.T) *cluster {
		return func(t *testing.T) *cluster { return up(t, testbed.Options{IPv6: true}, "--routing", routing) }
	}
	encrypted := func(mode netlab.Encryption) func(t *testing.T) *cluster {
		return func(t *testing.T) *cluster { return upEncrypted(t, mode, testbed.Options{IPv6: true}) }
	}
	for name, k := range map[string]struct {
		up      func(t *testing.T) *cluster
		carries func(uplink int) int
	}{
		"ebpf":      {plain("ebpf"), func(uplink int) int { return uplink }},
		"kernel":    {plain("kernel"), func(uplink int) int { return uplink }},
		"wireguard": {encrypted(netlab.WireGuard), func(uplink int) int { return uplink - 60 }},
		"ipsec":     {encrypted(netlab.IPsec), func(uplink int) int { return (uplink-52)/4*4 - 2 }}, // RFC 4303, 2.4: padded to 4 bytes
	} {
		t.Run(name, func(t *testing.T) {
			c := k.up(t)
			p := c.addPods()
			streams := c.startStreams([2]*testbed.Pod{p.a, p.b}, [2]*testbed.Pod{p.a, p.far}, [2]*testbed.Pod{p.far, p.a})
			for step, uplink := range []int{9000, 1400, 1500} {
				for _, n := range c.nodes {
					setUplinkMTU(t, n, uplink)
				}
				mtu := k.carries(uplink)
				c.waitMTU(p.a, mtu)
				c.waitMTU(p.b, mtu)
				c.waitMTU(p.far, mtu)
				streams.waitProgress()
				late := c.addPod(c.nodes[0], fmt.Sprintf("late-%d", step))
				c.waitMTU(late, mtu)
				for _, pair := range [][2]*testbed.Pod{{late, p.far}, {p.far, late}, {p.b, late}} {
					if err := c.reach(pair[0], pair[1]); err != nil {
						t.Errorf("MTU %d: %v", mtu, err)
					}
				}
			}
			streams.finish()
		})
	}
}

// TestPodThatRejectsMTU lowers the uplink's MTU below the minimum of IPv6: a problem names the pods, and the node stays
// ready.
func TestPodThatRejectsMTU(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	p := c.addPods()
	n := c.nodes[0]
	setUplinkMTU(t, n, 1200)
	c.waitProblem(n, "pod default/a has MTU 1500 instead of 1200")
	c.waitReady(n)
	if err := c.reach(p.a, p.b); err != nil {
		t.Error(err)
	}
	setUplinkMTU(t, n, 1400)
	c.waitMTU(p.a, 1400)
}

// startStreams starts a stream over each address family for every pair.
func (c *cluster) startStreams(pairs ...[2]*testbed.Pod) *traffic {
	c.t.Helper()
	tr := &traffic{t: c.t}
	for _, pair := range pairs {
		for _, address := range pair[1].Addresses {
			name := fmt.Sprintf("stream %s→%s %s", pair[0].Name, pair[1].Name, family(address))
			s, err := startStream(name, pair[0].Netns, pair[1].Netns, address)
			tr.add(s, err)
			tr.streams = append(tr.streams, s)
		}
	}
	tr.waitProgress()
	return tr
}

// waitMTU waits until both ends of the pod's veth pair, and the agent's endpoint, have this MTU.
func (c *cluster) waitMTU(pod *testbed.Pod, mtu int) {
	c.t.Helper()
	n := c.nodeOf(pod)
	eventually(c.t, func() error {
		endpoint, err := c.endpoint(n, pod)
		if err != nil {
			return err
		}
		inside, err := deviceMTU(pod.Netns, podInterface)
		if err != nil {
			return err
		}
		outside, err := deviceMTU(n.Netns, endpoint.HostDevice)
		if err != nil {
			return err
		}
		if inside != mtu || outside != mtu || endpoint.MTU != mtu {
			return fmt.Errorf("MTU of %s is %d in the pod, %d on the host, %d in the endpoint; want %d", pod.Name, inside, outside, endpoint.MTU, mtu)
		}
		return nil
	})
}

func (c *cluster) nodeOf(pod *testbed.Pod) *node {
	for _, n := range c.nodes {
		if n.Name == pod.Node {
			return n
		}
	}
	c.t.Fatalf("no node %s", pod.Node)
	return nil
}

// endpoint reads the endpoint of a pod from the node's agent.
func (c *cluster) endpoint(n *node, pod *testbed.Pod) (agentapi.Endpoint, error) {
	all, err := n.api().Endpoints(c.t.Context())
	for _, e := range all {
		if e.Pod.Name == pod.Name {
			return e, err
		}
	}
	return agentapi.Endpoint{}, errors.Join(err, fmt.Errorf("%s has no endpoint of pod %s", n.Name, pod.Name))
}

// TestMTUAsRequested sets --mtu below the uplinks' MTU: changes of the uplinks do not affect pods.
func TestMTUAsRequested(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true}, "--mtu", "1400")
	p := c.addPods()
	for _, mtu := range []int{1500, 1600} {
		for _, n := range c.nodes {
			setUplinkMTU(t, n, mtu)
			c.waitStatus(n, func(s *agentapi.Status) error {
				if len(s.Uplinks) == 0 || s.Uplinks[0].MTU != mtu {
					return fmt.Errorf("uplinks of %s: %+v", n.Name, s.Uplinks)
				}
				return nil
			})
		}
		c.waitMTU(p.a, 1400)
		c.waitMTU(p.far, 1400)
		if err := c.reach(p.a, p.far); err != nil {
			t.Error(err)
		}
	}
}

// TestPathNarrowerThanPods has pods with a larger MTU than the link: first by --mtu, then because the link's MTU shrinks
// under a stream. The node sends ICMP errors for packets that must not be fragmented, so senders learn the path MTU.
func TestPathNarrowerThanPods(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			const wire, narrower, pods = 1450, 1350, 1500
			c := up(t, testbed.Options{IPv6: true, MTU: wire}, "--mtu", fmt.Sprint(pods), "--routing", routing)
			p := c.addPods()
			c.waitMTU(p.a, pods)
			c.waitProblem(c.nodes[0], "--mtu", fmt.Sprint(pods), "eth0", fmt.Sprint(wire))
			for _, address := range p.far.Addresses {
				c.waitPathMTU(p.a, address, wire)
			}
			for _, address := range p.b.Addresses { // no link between pods of one node
				c.waitPathMTU(p.a, address, pods)
			}
			streams := c.startStreams([2]*testbed.Pod{p.a, p.far}, [2]*testbed.Pod{p.far, p.b})
			for _, n := range c.nodes {
				setUplinkMTU(t, n, narrower)
				c.waitProblem(n, "--mtu", fmt.Sprint(narrower))
			}
			streams.waitProgress()
			for _, address := range p.far.Addresses {
				c.waitPathMTU(p.b, address, narrower)
			}
			streams.finish()
		})
	}
}

// waitPathMTU sends packets that must not be fragmented until the sender has learned the path MTU, and then checks that a
// packet of that size arrives.
func (c *cluster) waitPathMTU(from *testbed.Pod, to netip.Addr, want int) {
	c.t.Helper()
	const port = 4242
	var receiver net.PacketConn
	target := netip.AddrPortFrom(to, port)
	if err := c.netnsOf(to).Do(func() (err error) {
		receiver, err = net.ListenPacket("udp", target.String())
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
	defer receiver.Close()
	probe, err := newPathProbe(from.Netns, target)
	if err != nil {
		c.t.Fatal(err)
	}
	defer probe.Close()
	eventually(c.t, func() error {
		if err := probe.find(); err != nil {
			return fmt.Errorf("%s to %s: %w", from.Name, to, err)
		}
		got, err := probe.mtu()
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("path MTU of %s to %s is %d, want %d", from.Name, to, got, want)
		}
		_, err = probe.Write(make([]byte, probe.payload(want))) // earlier packets may all have been larger
		return err
	})
	buffer := make([]byte, 64<<10)
	for {
		if err := receiver.SetReadDeadline(time.Now().Add(patience)); err != nil {
			c.t.Fatal(err)
		}
		n, _, err := receiver.ReadFrom(buffer)
		if err != nil {
			c.t.Errorf("no packet of %d bytes arrives at %s: %v", want, to, err)
			return
		}
		if n == probe.payload(want) {
			return
		}
	}
}

// netnsOf returns the network namespace of the pod with this address.
func (c *cluster) netnsOf(address netip.Addr) testbed.Netns {
	c.t.Helper()
	for _, n := range c.nodes {
		all, err := n.api().Endpoints(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		for _, e := range all {
			for _, a := range e.Addresses {
				if a == address {
					return testbed.Netns{Path: e.Netns}
				}
			}
		}
	}
	c.t.Fatalf("no pod has %s", address)
	return testbed.Netns{}
}

// pathProbe is a UDP socket whose packets must not be fragmented.
type pathProbe struct {
	*net.UDPConn
	ipv4 bool
}

func newPathProbe(netns testbed.Netns, to netip.AddrPort) (*pathProbe, error) {
	p := &pathProbe{ipv4: to.Addr().Is4()}
	err := netns.Do(func() (err error) {
		p.UDPConn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, p.forbidFragments()
}

func (p *pathProbe) forbidFragments() error {
	return p.option(func(fd int) error {
		if p.ipv4 {
			return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	})
}

func (p *pathProbe) option(do func(fd int) error) error {
	raw, err := p.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(failed, err)
}

// mtu reads the path MTU that the sender's kernel uses.
func (p *pathProbe) mtu() (mtu int, err error) {
	err = p.option(func(fd int) error {
		level, name := unix.IPPROTO_IP, unix.IP_MTU
		if !p.ipv4 {
			level, name = unix.IPPROTO_IPV6, unix.IPV6_MTU
		}
		var err error
		mtu, err = unix.GetsockoptInt(fd, level, name)
		return err
	})
	return mtu, err
}

// payload returns the length of the data in a packet of this size.
func (p *pathProbe) payload(mtu int) int {
	const udp, ip4, ip6 = 8, 20, 40
	if p.ipv4 {
		return mtu - ip4 - udp
	}
	return mtu - ip6 - udp
}

// find sends packets of the kernel's path MTU until it does not change any more.
func (p *pathProbe) find() error {
	begin := time.Now()
	for quiet := 0; quiet < 5; {
		if time.Since(begin) > patience {
			return errors.New("the path MTU keeps changing")
		}
		mtu, err := p.mtu()
		if err != nil {
			return err
		}
		_, err = p.Write(make([]byte, p.payload(mtu)))
		switch {
		case errors.Is(err, unix.EMSGSIZE):
			quiet = 0
		case err != nil:
			return err
		default:
			quiet++
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// changeLink changes a device of a namespace.
func changeLink(t *testing.T, netns testbed.Netns, name string, change func(*netlink.Handle, netlink.Link) error) {
	t.Helper()
	err := netns.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return change(h, link)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// setUplink sets the node's uplink up or down.
func setUplink(t *testing.T, n *node, up bool) {
	t.Helper()
	changeLink(t, n.Netns, testbed.Uplink, func(h *netlink.Handle, l netlink.Link) error {
		if up {
			return h.LinkSetUp(l)
		}
		return h.LinkSetDown(l)
	})
}

// setUplinkMTU changes the MTU of the node's uplink.
func setUplinkMTU(t *testing.T, n *node, mtu int) {
	t.Helper()
	changeLink(t, n.Netns, testbed.Uplink, func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetMTU(l, mtu) })
}

// flushAddresses removes the IPv4 addresses of a pod's device.
func flushAddresses(t *testing.T, netns testbed.Netns) {
	t.Helper()
	changeLink(t, netns, podInterface, func(h *netlink.Handle, l netlink.Link) error {
		addresses, err := h.AddrList(l, netlink.FAMILY_V4)
		for i := range addresses {
			if err := h.AddrDel(l, &addresses[i]); err != nil {
				return err
			}
		}
		return err
	})
}

// deviceMTU reads the MTU of a device.
func deviceMTU(netns testbed.Netns, name string) (mtu int, err error) {
	err = netns.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err == nil {
			mtu = link.Attrs().MTU
		}
		return err
	})
	return mtu, err
}
