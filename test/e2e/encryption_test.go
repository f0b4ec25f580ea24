package e2e

import (
	"bytes"
	"cmp"
	"encoding/base64"
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
	"github.com/beeline-cni/beeline/internal/device/ipsec"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// keyFile is the private key of a node.
func (n *node) keyFile() string { return filepath.Join(n.stateDir(), "wireguard.key") }

// encryptionMode is a kind of encryption.
type encryptionMode struct {
	name, device string
	// mtu is that of pods with nodes that have IPv4 addresses and uplinks of 1500 bytes.
	mtu int
	// missing says why this kernel does not have it.
	missing func() error
}

// path is that to another node.
func (m encryptionMode) path() string { return fmt.Sprint(m.name, " ", m.mtu) }

var (
	byWireGuard = encryptionMode{"wireguard", wireguard.Name, 1440, func() error {
		_, err := os.Stat("/sys/module/wireguard")
		return err
	}}
	byIPsec = encryptionMode{"ipsec", ipsec.Name, 1446, func() error {
		_, err := os.Stat("/sys/module/esp4")
		return err
	}}
)

// keysFile is the file of the cluster's keys of IPsec.
func (n *node) keysFile() string { return filepath.Join(n.stateDir(), "ipsec.keys") }

// keysOf is a file of keys of IPsec with these generations.
func keysOf(generations ...int) string {
	var lines []string
	for _, g := range generations {
		cipher := []string{"aes-128-gcm", "aes-256-gcm"}[g%2]
		lines = append(lines, fmt.Sprint(g, " ", cipher, " ", base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(g)}, 32)), "\n"))
	}
	return strings.Join(lines, "")
}

func (c *cluster) writeKeys(n *node, generations ...int) {
	c.t.Helper()
	err := os.MkdirAll(n.stateDir(), 0o755)
	if err == nil {
		err = os.WriteFile(n.keysFile()+".new", []byte(keysOf(generations...)), 0o400)
	}
	if err == nil {
		err = os.Rename(n.keysFile()+".new", n.keysFile())
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// publish makes the node's key of WireGuard, as its agent would, and writes the public one into its manifest.
func (c *cluster) publish(n *node) {
	c.t.Helper()
	key, _, err := encryption.LoadKey(n.keyFile())
	if err != nil {
		c.t.Fatal(err)
	}
	c.annotate(n, map[string]string{v1alpha1.AnnotationWireGuardKey: key.PublicKey().String()})
}

func (c *cluster) annotate(n *node, annotations map[string]string) {
	c.t.Helper()
	n.object.Annotations = annotations
	c.writeNode(n)
}

// announce does for IPsec what agents do where there is an API server: it writes what the agent announces into its manifest.
func (c *cluster) announce(n *node) {
	c.t.Helper()
	c.waitStatus(n, func(s *agentapi.Status) error {
		if s.Annotations[v1alpha1.AnnotationIPsec] == "" {
			return fmt.Errorf("%s announces nothing: %v", n.Name, s.Choices)
		}
		c.annotate(n, s.Annotations)
		return nil
	})
}

// encrypted are the flags of an agent that encrypts.
func (n *node) encrypted(flags ...string) []string {
	mode := cmp.Or(n.encryption.name, byWireGuard.name)
	return append([]string{"--encryption", mode, "--wireguard-key", n.keyFile(), "--ipsec-keys", n.keysFile(), "--ipsec-state", filepath.Join(n.stateDir(), "ipsec.json")}, flags...)
}

// need skips the test on kernels without this encryption: test/vm has kernels with it.
func (m encryptionMode) need(t *testing.T) {
	t.Helper()
	testenv.Root(t)
	if err := m.missing(); err != nil {
		testenv.Missing(t, "not on this kernel: "+m.name)
	}
}

// upEncrypted makes a lab whose nodes know each other's keys.
func upEncrypted(t *testing.T, mode encryptionMode, o testbed.Options, flags ...string) *cluster {
	t.Helper()
	mode.need(t)
	c := newCluster(t, o)
	for _, n := range c.nodes {
		n.encryption = mode
		if mode.name == byWireGuard.name {
			c.publish(n)
		} else {
			c.writeKeys(n, 1)
		}
	}
	for _, n := range c.nodes {
		c.start(n, current(t), n.encrypted(flags...)...)
	}
	for _, n := range c.nodes {
		c.waitReady(n)
		if mode.name == byIPsec.name {
			c.announce(n)
		}
	}
	for _, n := range c.nodes {
		c.waitEncrypted(n)
	}
	return c
}

// waitEncrypted waits until packets to all other nodes can be encrypted.
func (c *cluster) waitEncrypted(n *node) {
	c.t.Helper()
	c.waitStatus(n, func(s *agentapi.Status) error {
		for _, other := range s.Nodes {
			if other.Path != n.encryption.name {
				return fmt.Errorf("%s reaches %s by %s: %+v", n.Name, other.Name, other.Path, other.Encryption)
			}
		}
		return nil
	})
}

// tap sees each frame of a node's uplink.
type tap struct {
	fd   int
	done sync.WaitGroup
	// plain are IP packets with an address of a pod, encrypted counts packets of WireGuard and ESP.
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
	if protocol == unix.IPPROTO_ESP || protocol == unix.IPPROTO_UDP && len(ports) >= 4 && int(ports[2])<<8|int(ports[3]) == 28781 {
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
	for _, k := range []struct {
		mode    encryptionMode
		routing string
	}{{byIPsec, "ebpf"}, {byIPsec, "kernel"}, {byWireGuard, "ebpf"}, {byWireGuard, "kernel"}} {
		mode, routing := k.mode, k.routing
		t.Run(mode.name+" "+routing, func(t *testing.T) {
			c := upEncrypted(t, mode, twoSubnets, "--routing", routing)
			var taps []*tap
			for _, n := range c.nodes {
				c.sysctl(n, "net/ipv4/conf/all/rp_filter", "0")
				taps = append(taps, c.tapUplink(n, c.podRanges()))
			}
			pods := c.onePodEach()
			c.reachAll(pods, 2)
			c.wantPathsTo(c.nodes[0], map[string]string{"n2": mode.path(), "n3": mode.path()})
			for _, pod := range pods {
				c.waitMTU(pod, mode.mtu)
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
	byWireGuard.need(t)
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
	for _, mode := range []encryptionMode{byWireGuard, byIPsec} {
		t.Run(mode.name, func(t *testing.T) {
			c := upEncrypted(t, mode, testbed.Options{IPv6: true})
			p := c.addPods()
			w := c.tapUplink(c.nodes[0], c.podRanges())
			damages := [][]string{{"link", "delete", mode.device}, {"link", "set", mode.device, "down"}, {"link", "delete", tunnelDevice}}
			if mode.name == byIPsec.name {
				damages = append(damages, []string{"states"}, []string{"policies"})
			}
			for _, damage := range damages {
				c.damage(c.nodes[0], damage)
				eventually(t, func() error {
					if mode.name == byIPsec.name {
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
	c := upEncrypted(t, byWireGuard, testbed.Options{IPv6: true})
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
	c := upEncrypted(t, byWireGuard, testbed.Options{IPv6: true})
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

// waitGeneration waits until a node announces these generations of keys of IPsec, and encrypts to the other node with this one.
func (c *cluster) waitGeneration(n *node, announces string, want uint32) {
	c.t.Helper()
	for i := range 2 { // a change of the kernel: else the agent reads its keys again once a minute
		if out, err := n.Netns.Output(c.t.Context(), "ip", "link", []string{"add", "delete"}[i], "poke", "type", "dummy"); err != nil {
			c.t.Fatalf("poke: %v\n%s", err, out)
		}
	}
	c.waitStatus(n, func(s *agentapi.Status) error {
		text := s.Annotations[v1alpha1.AnnotationIPsec]
		if text != n.object.Annotations[v1alpha1.AnnotationIPsec] {
			c.annotate(n, s.Annotations)
		}
		if e := s.Nodes[0].Encryption; e == nil || e.KeyGeneration != want || !strings.HasSuffix(text, " "+announces) {
			return fmt.Errorf("%s announces %s and encrypts with %+v, want %s and %d", n.Name, text, e, announces, want)
		}
		return nil
	})
}

// TestEncryptionGenerations changes the keys of IPsec one node after the other, while connections go on: nodes use the highest
// generation that both have, and nothing goes in plaintext.
func TestEncryptionGenerations(t *testing.T) {
	t.Parallel()
	c := upEncrypted(t, byIPsec, testbed.Options{IPv6: true})
	first, second := c.nodes[0], c.nodes[1]
	p := c.addPods()
	w := c.tapUplink(first, c.podRanges())
	streams := c.startStreams([2]*testbed.Pod{p.a, p.far}, [2]*testbed.Pod{p.far, p.b})
	epoch := first.object.Annotations[v1alpha1.AnnotationIPsec][:32]
	for _, step := range []struct {
		on          *node
		generations []int
		announces   string
		want        uint32
	}{
		{first, []int{1, 2}, "2,1", 1},
		{second, []int{1, 2}, "2,1", 2},
		{first, []int{2}, "2,1", 2}, // a generation that has left the file stays for a while
		{second, []int{3}, "3,2,1", 2},
		{first, []int{3}, "3,2,1", 3},
		{second, []int{3}, "3,2,1", 3},
	} {
		c.writeKeys(step.on, step.generations...)
		c.waitGeneration(step.on, step.announces, step.want)
		streams.waitProgress()
	}
	c.restart(first, current(t), first.encrypted()...)
	c.waitGeneration(first, "3", 3)
	streams.waitProgress()
	streams.finish()
	if got := first.object.Annotations[v1alpha1.AnnotationIPsec]; got != epoch+" 3" {
		t.Errorf("after all %s announces %q, want its first epoch %s, and generation 3", first.Name, got, epoch)
	}
	if err := c.reach(p.a, p.far); err != nil {
		t.Error(err)
	}
	w.expect(t, "generations")
	page := c.scrape(first, "/metrics", http.StatusOK)
	for _, name := range []string{`beeline_ipsec_peers{generation="3"} 1`, "beeline_ipsec_received_bytes_total ", "beeline_ipsec_sent_bytes_total "} {
		if !strings.Contains(page, "\n"+name) {
			t.Errorf("%s serves no metric %s", first.Name, name)
		}
	}
	e := c.status(first).Nodes[0].Encryption
	if e.SentBytes == 0 || e.ReceivedBytes == 0 || e.SentPackets == 0 || e.RejectedPackets != 0 {
		t.Errorf("%s has encrypted %+v", first.Name, e)
	}
}

// TestEncryptionForged has a node that encrypts packets with addresses of another node's pod: they reach no pod.
func TestEncryptionForged(t *testing.T) {
	t.Parallel()
	c := upEncrypted(t, byIPsec, twoSubnets)
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

// TestEncryptionOff turns encryption off as the manual says, while connections go on.
func TestEncryptionOff(t *testing.T) {
	t.Parallel()
	c := upEncrypted(t, byWireGuard, testbed.Options{IPv6: true})
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
