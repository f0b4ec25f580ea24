package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"

	"github.com/beeline-cni/beeline/internal/agent/encryption"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// keyFile is the private key of a node.
func (n *node) keyFile() string { return filepath.Join(n.stateDir(), "wireguard.key") }

// publish makes the node's key, as its agent would, and writes the public one into its manifest.
func (c *cluster) publish(n *node) {
	c.t.Helper()
	key, _, err := encryption.LoadKey(n.keyFile())
	if err != nil {
		c.t.Fatal(err)
	}
	n.object.Annotations = map[string]string{v1alpha1.AnnotationWireGuardKey: key.PublicKey().String()}
	c.writeNode(n)
}

// encrypted are the flags of an agent that encrypts.
func (n *node) encrypted(flags ...string) []string {
	return append([]string{"--encryption", "wireguard", "--wireguard-key", n.keyFile()}, flags...)
}

// needWireGuard skips the test on kernels without WireGuard: test/vm has kernels with it.
func needWireGuard(t *testing.T) {
	t.Helper()
	testenv.Root(t)
	if _, err := os.Stat("/sys/module/wireguard"); err != nil {
		testenv.Missing(t, "not on this kernel: WireGuard (CONFIG_WIREGUARD)")
	}
}

// upEncrypted makes a lab whose nodes know each other's keys.
func upEncrypted(t *testing.T, o testbed.Options, flags ...string) *cluster {
	t.Helper()
	needWireGuard(t)
	c := newCluster(t, o)
	for _, n := range c.nodes {
		c.publish(n)
	}
	for _, n := range c.nodes {
		c.start(n, current(t), n.encrypted(flags...)...)
	}
	for _, n := range c.nodes {
		c.waitReady(n)
	}
	return c
}

// tap sees each frame of a node's uplink.
type tap struct {
	fd   int
	done sync.WaitGroup
	// plain are IP packets with an address of a pod, encrypted counts packets of WireGuard.
	mu        sync.Mutex
	plain     []plainPacket
	encrypted int
}

type plainPacket struct{ source, destination netip.Addr }

// tapUplink watches the uplink for addresses of these ranges until stop.
func (c *cluster) tapUplink(n *node, ranges []netip.Prefix) *tap {
	c.t.Helper()
	w := &tap{}
	err := n.Netns.Do(func() (err error) {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
		w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		return err
	})
	index := 0
	if err == nil {
		err = n.Netlink(func(h *netlink.Handle) error {
			link, err := h.LinkByName(testbed.Uplink)
			if err == nil {
				index = link.Attrs().Index
			}
			return err
		})
	}
	if err == nil {
		err = unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	}
	if err == nil {
		err = unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	stopped := make(chan struct{})
	w.done.Go(func() {
		frame := make([]byte, 2048)
		for {
			size, from, err := unix.Recvfrom(w.fd, frame, 0)
			if err != nil {
				select {
				case <-stopped:
					return
				default:
					continue
				}
			}
			if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Ifindex == index {
				w.look(frame[:size], ranges)
			}
		}
	})
	c.t.Cleanup(func() {
		close(stopped)
		w.done.Wait()
		unix.Close(w.fd)
	})
	return w
}

// look sorts a frame.
func (w *tap) look(frame []byte, ranges []netip.Prefix) {
	var source, destination netip.Addr
	var protocol byte
	var ports []byte
	switch {
	case len(frame) >= 14+20 && frame[12] == 0x08 && frame[13] == 0x00:
		source, destination = netip.AddrFrom4([4]byte(frame[26:30])), netip.AddrFrom4([4]byte(frame[30:34]))
		protocol, ports = frame[23], frame[34:]
	case len(frame) >= 14+40 && frame[12] == 0x86 && frame[13] == 0xdd:
		source, destination = netip.AddrFrom16([16]byte(frame[22:38])), netip.AddrFrom16([16]byte(frame[38:54]))
		protocol, ports = frame[20], frame[54:]
	default:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(source) || p.Contains(destination) }) {
		w.plain = append(w.plain, plainPacket{source, destination})
	}
	if protocol == unix.IPPROTO_UDP && len(ports) >= 4 && int(ports[2])<<8|int(ports[3]) == 28781 {
		w.encrypted++
	}
}

// expect wants encrypted packets and no others.
func (w *tap) expect(t *testing.T, what string) {
	t.Helper()
	time.Sleep(200 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.plain) > 0 {
		t.Errorf("%s: %d packets in plaintext, the first ones %v", what, len(w.plain), w.plain[:min(3, len(w.plain))])
	}
	if w.encrypted == 0 {
		t.Errorf("%s: no encrypted packet", what)
	}
}

// podRanges are those of all nodes.
func (c *cluster) podRanges() (all []netip.Prefix) {
	for _, n := range c.nodes {
		for _, text := range n.object.Spec.PodCIDRs {
			all = append(all, netip.MustParsePrefix(text))
		}
	}
	return all
}

// TestEncryption connects all pairs of pods and of nodes and pods, in one subnet and through a router, while agents
// restart and nodes get other addresses of pods: the wire sees no plaintext of a pod.
func TestEncryption(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			c := upEncrypted(t, twoSubnets, "--routing", routing)
			var taps []*tap
			for _, n := range c.nodes {
				c.sysctl(n, "net/ipv4/conf/all/rp_filter", "0")
				taps = append(taps, c.tapUplink(n, c.podRanges()))
			}
			pods := c.onePodEach()
			c.reachAll(pods, 2)
			c.wantPathsTo(c.nodes[0], map[string]string{"n2": "wireguard 1440", "n3": "wireguard 1440"})
			for _, pod := range pods {
				c.waitMTU(pod, 1440)
			}
			c.wantNoDrops()
			streams := c.startStreams([2]*testbed.Pod{pods[0], pods[1]}, [2]*testbed.Pod{pods[2], pods[0]})
			for _, n := range c.nodes {
				c.restart(n, current(t), n.encrypted("--routing", routing)...)
			}
			streams.waitProgress()
			streams.finish()
			for i, w := range taps {
				w.expect(t, c.nodes[i].Name)
			}
		})
	}
}

// TestEncryptionPending has a node without a key: nothing of a pod goes there, and its plaintext is dropped. Once it has
// one, they reach each other. While plaintext is allowed, both ways work.
func TestEncryptionPending(t *testing.T) {
	t.Parallel()
	needWireGuard(t)
	c := newCluster(t, testbed.Options{IPv6: true})
	first, second := c.nodes[0], c.nodes[1]
	c.publish(first)
	c.start(first, current(t), first.encrypted()...)
	c.start(second, current(t))
	for _, n := range c.nodes {
		c.waitReady(n)
	}
	w := c.tapUplink(first, c.podRanges())
	near, far := c.addPod(first, "near"), c.addPod(second, "far")
	for _, pair := range [][2]*testbed.Pod{{near, far}, {far, near}, {asPod(first, far), far}} {
		if err := c.reach(pair[0], pair[1]); err == nil {
			t.Errorf("%s reaches %s", pair[0].Name, pair[1].Name)
		}
	}
	w.mu.Lock()
	for _, packet := range w.plain {
		if slices.Contains(near.Addresses, packet.source) {
			t.Errorf("the first node sends in plaintext: %v", packet)
		}
	}
	w.mu.Unlock()
	dropped, err := first.api().Drops(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []agentapi.Drop{{Program: "from_wire", Reason: "unencrypted"}, {Program: "from_pod", Reason: "encryption_pending"}} {
		if !slices.ContainsFunc(dropped, func(d agentapi.Drop) bool {
			return d.Program == want.Program && d.Reason == want.Reason && d.Packets > 0
		}) {
			t.Errorf("no drop %s %s", want.Program, want.Reason)
		}
	}
	c.wantPathsTo(first, map[string]string{"n2": "encryption pending 0"})

	c.restart(first, current(t), first.encrypted("--encryption-strict=false")...)
	if err := c.reach(near, far); err != nil {
		t.Errorf("while plaintext is allowed: %v", err)
	}
	streams := c.startStreams([2]*testbed.Pod{near, far}, [2]*testbed.Pod{far, near})
	c.publish(second)
	c.restart(second, current(t), second.encrypted("--encryption-strict=false")...)
	streams.waitProgress()
	c.wantPathsTo(first, map[string]string{"n2": "wireguard 1440"})
	for _, n := range c.nodes {
		c.restart(n, current(t), n.encrypted()...)
	}
	streams.waitProgress()
	streams.finish()
	strict := c.tapUplink(first, c.podRanges())
	if err := c.reach(near, far); err != nil {
		t.Error(err)
	}
	strict.expect(t, "strict")
}

// TestEncryptionDamaged takes the device, its peers and its program away: nothing goes in plaintext meanwhile, and the
// agent restores them.
func TestEncryptionDamaged(t *testing.T) {
	t.Parallel()
	c := upEncrypted(t, testbed.Options{IPv6: true})
	p := c.addPods()
	w := c.tapUplink(c.nodes[0], c.podRanges())
	for _, damage := range [][]string{
		{"link", "delete", wireguard.Name},
		{"link", "set", wireguard.Name, "down"},
		{"link", "delete", tunnelDevice},
	} {
		if out, err := c.nodes[0].Netns.Output(t.Context(), "ip", damage...); err != nil {
			t.Fatalf("%v: %v\n%s", damage, err, out)
		}
		eventually(t, func() error {
			for _, pair := range [][2]*testbed.Pod{{p.a, p.far}, {asPod(c.nodes[0], p.far), p.far}} {
				if err := c.reach(pair[0], pair[1]); err != nil {
					return fmt.Errorf("after %v: %w", damage, err)
				}
			}
			return nil
		})
	}
	w.expect(t, "damaged")
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

// peersOf are the public keys of the peers of a node's device.
func (c *cluster) peersOf(n *node) (keys []string) {
	c.t.Helper()
	err := n.Netns.Do(func() error {
		client, err := wgctrl.New()
		if err != nil {
			return err
		}
		defer client.Close()
		device, err := client.Device(wireguard.Name)
		if err != nil {
			return err
		}
		for _, p := range device.Peers {
			keys = append(keys, p.PublicKey.String())
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return keys
}

// TestEncryptionRotation gives each node a new key: the others follow before they reconcile all, connections go on, and
// nothing goes in plaintext. The kernel checks the way back strictly at all devices.
func TestEncryptionRotation(t *testing.T) {
	t.Parallel()
	c := upEncrypted(t, testbed.Options{IPv6: true})
	p := c.addPods()
	w := c.tapUplink(c.nodes[0], c.podRanges())
	for _, n := range c.nodes {
		c.sysctl(n, "net/ipv4/conf/all/rp_filter", "1")
	}
	streams := c.startStreams([2]*testbed.Pod{p.a, p.far}, [2]*testbed.Pod{p.far, p.b})
	for i, n := range c.nodes {
		other := c.nodes[1-i]
		old := n.object.Annotations[v1alpha1.AnnotationWireGuardKey]
		if err := os.Remove(n.keyFile()); err != nil {
			t.Fatal(err)
		}
		c.publish(n)
		now := n.object.Annotations[v1alpha1.AnnotationWireGuardKey]
		deadline := time.Now().Add(25 * time.Second)
		for keys := c.peersOf(other); now == old || len(keys) != 1 || keys[0] != now; keys = c.peersOf(other) {
			if time.Now().After(deadline) {
				t.Fatalf("%s has peers %v, want %s instead of %s", other.Name, keys, now, old)
			}
			time.Sleep(100 * time.Millisecond)
		}
		c.restart(n, current(t), n.encrypted()...)
		streams.waitProgress()
	}
	streams.finish()
	for _, from := range []*testbed.Pod{p.a, asPod(c.nodes[0], p.far)} {
		if err := c.reach(from, p.far); err != nil {
			t.Error(err)
		}
	}
	w.expect(t, "rotation")
	for _, n := range c.nodes {
		page := c.scrape(n, "/metrics", http.StatusOK)
		for _, name := range []string{"beeline_wireguard_peers{", "beeline_wireguard_received_bytes_total ", "beeline_wireguard_sent_bytes_total "} {
			if !strings.Contains(page, "\n"+name) {
				t.Errorf("%s serves no metric %s", n.Name, name)
			}
		}
	}
}

// TestEncryptionOff turns encryption off as the manual says, while connections go on.
func TestEncryptionOff(t *testing.T) {
	t.Parallel()
	c := upEncrypted(t, testbed.Options{IPv6: true})
	p := c.addPods()
	streams := c.startStreams([2]*testbed.Pod{p.a, p.far}, [2]*testbed.Pod{p.far, p.b})
	for _, n := range c.nodes {
		c.restart(n, current(t), n.encrypted("--encryption-strict=false")...)
	}
	streams.waitProgress()
	for _, n := range c.nodes {
		c.restart(n, current(t))
		n.object.Annotations = nil // its agent takes the key back, where there is an API server
		c.writeNode(n)
		streams.waitProgress()
	}
	streams.finish()
	for _, n := range c.nodes {
		c.waitNoProblem(n)
		if out, err := n.Netns.Output(t.Context(), "ip", "link", "show", wireguard.Name); err == nil {
			t.Errorf("%s still has the device:\n%s", n.Name, out)
		}
	}
	c.wantPathsTo(c.nodes[0], map[string]string{"n2": "direct 1500"})
	c.waitMTU(p.a, 1500)
	if err := c.reach(p.a, p.far); err != nil {
		t.Error(err)
	}
}
