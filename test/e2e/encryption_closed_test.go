package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
	"github.com/beeline-cni/beeline/test/netlab"
)

// damage runs ip, or deletes all states or policies of IPsec.
func (c *cluster) damage(n *node, what []string) {
	c.t.Helper()
	var err error
	switch what[0] {
	case "states":
		err = n.Netns.Do(func() error { return netlink.XfrmStateFlush(netlink.XFRM_PROTO_ESP) })
	case "policies":
		err = n.Netns.Do(netlink.XfrmPolicyFlush)
	default:
		var out []byte
		if out, err = n.Netns.Output(c.t.Context(), "ip", what...); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		c.t.Fatalf("%v: %v", what, err)
	}
}

// TestEncryptionDamaged takes the device, its peers and its program away: nothing goes in plaintext meanwhile, and the
// agent restores them.
func TestEncryptionDamaged(t *testing.T) {
	t.Parallel()
	for _, mode := range []netlab.Encryption{netlab.WireGuard, netlab.IPsec} {
		t.Run(mode.Name, func(t *testing.T) {
			c := upEncrypted(t, mode, testbed.Options{IPv6: true})
			p := c.addPods()
			w := c.tapWire()
			damages := [][]string{{"link", "delete", mode.Device}, {"link", "set", mode.Device, "down"}, {"link", "delete", tunnelDevice}}
			if mode.Name == netlab.IPsec.Name {
				damages = append(damages, []string{"states"}, []string{"policies"})
			}
			for _, damage := range damages {
				c.damage(c.nodes[0], damage)
				eventually(t, func() error {
					if mode.Name == netlab.IPsec.Name {
						c.announce(c.nodes[0]) // without its states it begins a new epoch
					}
					for _, pair := range [][2]*testbed.Pod{{p.a, p.far}, {asPod(c.nodes[0], p.far), p.far}} {
						if err := c.reach(pair[0], pair[1]); err != nil {
							return fmt.Errorf("after %v: %w", damage, err)
						}
					}
					return nil
				})
			}
			w.expect(t, "damaged")
		})
	}
}

// knock sends some packets to each address of a pod, and expects nothing back.
func knock(from testbed.Netns, to *testbed.Pod) error {
	return from.Do(func() error {
		for _, a := range to.Addresses {
			conn, err := net.Dial("udp", netip.AddrPortFrom(a, 9).String())
			if err != nil {
				continue // the kernel has no route: nothing leaves
			}
			for range 3 {
				_, _ = conn.Write([]byte(capture.Marker)) // an error says that nothing left
				time.Sleep(10 * time.Millisecond)
			}
			_ = conn.Close()
		}
		return nil
	})
}

// otherRoutes leads to the pod ranges of a node in another way than Beeline: by routes with longer prefixes.
func (c *cluster) otherRoutes(on, to *node) {
	c.t.Helper()
	for i, text := range to.object.Spec.PodCIDRs {
		p := netip.MustParsePrefix(text)
		half := netip.PrefixFrom(p.Addr(), p.Bits()+1)
		via := netip.MustParseAddr(to.object.Status.Addresses[i].Address)
		if out, err := on.Netns.Output(c.t.Context(), "ip", "route", "add", half.String(), "via", via.String()); err != nil {
			c.t.Fatalf("add route: %v\n%s", err, out)
		}
	}
}

// TestEncryptionClosed has a node that cannot encrypt, or whose peer cannot, with routes of another program to the other
// node's pods: neither the node nor a pod, through the stack or past it, sends plaintext. It needs no WireGuard.
func TestEncryptionClosed(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--routing", "ebpf"}, {"--routing", "kernel"}, {"--routing", "kernel", "--services", "none", "--masquerade=false"}} {
		t.Run(fmt.Sprint(flags[1], len(flags)), func(t *testing.T) {
			c := newCluster(t, testbed.Options{IPv6: true})
			first, second := c.nodes[0], c.nodes[1]
			c.start(first, current(t), first.encrypted(flags...)...)
			c.start(second, current(t), flags...)
			for _, n := range c.nodes {
				c.waitReady(n)
			}
			c.waitStatus(first, func(s *agentapi.Status) error {
				for _, choice := range s.Choices {
					if choice.Name == "tunnel" && !strings.Contains(choice.Reason, "encryption takes its place") {
						return fmt.Errorf("no tunnel of VXLAN, %s", choice.Reason)
					}
				}
				return nil
			})
			w := c.tapWire()
			near, far := c.addPod(first, "near"), c.addPod(second, "far")
			c.otherRoutes(first, second)
			for _, from := range []testbed.Netns{first.Netns, near.Netns} {
				if err := knock(from, far); err != nil {
					t.Fatal(err)
				}
			}
			w.wantSilent(t, "with other routes", far)
			if c.dropped(first, "to_wire", "unencrypted") == 0 {
				t.Error("no plaintext was dropped at the uplink: the test does not show what it should")
			}
			// And what comes in plaintext arrives nowhere.
			if err := c.reach(far, asPod(first, far)); err == nil {
				t.Error("a pod reaches the node in plaintext")
			}
			if c.dropped(first, "from_wire", "unencrypted") == 0 {
				t.Error("plaintext was not dropped as such")
			}
		})
	}
}

// TestEncryptionAbandoned kills the agent and takes the VXLAN device away, with it the stack's routes: the default route
// leads to the other node now, and nothing goes there in plaintext.
func TestEncryptionAbandoned(t *testing.T) {
	t.Parallel()
	c := upEncrypted(t, netlab.WireGuard, testbed.Options{IPv6: true})
	first, second := c.nodes[0], c.nodes[1]
	p := c.addPods()
	w := c.tapWire()
	c.kill(first)
	for _, a := range second.object.Status.Addresses {
		if out, err := first.Netns.Output(t.Context(), "ip", "route", "replace", "default", "via", a.Address); err != nil {
			t.Fatalf("set default route: %v\n%s", err, out)
		}
	}
	for _, damage := range [][]string{{"link", "set", tunnelDevice, "down"}, {"link", "delete", tunnelDevice}} {
		if out, err := first.Netns.Output(t.Context(), "ip", damage...); err != nil {
			t.Fatalf("%v: %v\n%s", damage, err, out)
		}
		if err := knock(first.Netns, p.far); err != nil {
			t.Fatal(err)
		}
		w.wantSilent(t, fmt.Sprint(damage), p.far)
	}
	if err := c.reach(p.a, p.far); err != nil {
		t.Errorf("pods do not use that device: %v", err)
	}
	w.expect(t, "pods of an abandoned node")
}

// TestEncryptionForged has a node that encrypts packets with addresses of another node's pod: they reach no pod.
func TestEncryptionForged(t *testing.T) {
	t.Parallel()
	c := upEncrypted(t, netlab.IPsec, twoSubnets)
	pods := c.onePodEach()
	target, forger, victim := c.nodes[0], c.nodes[1], pods[2]
	for _, a := range victim.Addresses {
		if out, err := forger.Netns.Output(t.Context(), "ip", "address", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "lo", "nodad"); err != nil {
			t.Fatalf("add address: %v\n%s", err, out)
		}
	}
	err := forger.Netns.Do(func() error {
		for i, a := range pods[0].Addresses {
			conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(victim.Addresses[i], 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
			if err != nil {
				return err
			}
			for range 5 {
				_, _ = conn.Write([]byte("forged"))
			}
			_ = conn.Close()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if got := c.dropped(target, "from_ipsec", "invalid_source"); got < 10 {
			return fmt.Errorf("%d packets dropped, want 10", got)
		}
		return nil
	})
}
