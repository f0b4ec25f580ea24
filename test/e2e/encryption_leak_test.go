package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// knock sends some packets to each address of a pod, and expects nothing back.
func knock(from testbed.Netns, to *testbed.Pod) error {
	return from.Do(func() error {
		for _, a := range to.Addresses {
			conn, err := net.Dial("udp", netip.AddrPortFrom(a, 9).String())
			if err != nil {
				continue // the kernel has no route: nothing leaves
			}
			for range 3 {
				_, _ = conn.Write([]byte("secret")) // an error says that nothing left
				time.Sleep(10 * time.Millisecond)
			}
			_ = conn.Close()
		}
		return nil
	})
}

// wantSilent wants no plaintext that goes to a pod's addresses.
func (w *tap) wantSilent(t *testing.T, what string, to *testbed.Pod) {
	t.Helper()
	time.Sleep(200 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.plain {
		if slices.Contains(to.Addresses, p.destination) {
			t.Errorf("%s: plaintext of %s to %s", what, p.source, p.destination)
			return
		}
	}
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
			w := c.tapUplink(first, c.podRanges())
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
	c := upEncrypted(t, testbed.Options{IPv6: true})
	first, second := c.nodes[0], c.nodes[1]
	p := c.addPods()
	w := c.tapUplink(first, c.podRanges())
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
