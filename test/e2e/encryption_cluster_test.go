package e2e

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
	"github.com/beeline-cni/beeline/test/netlab"
)

// encryptions are all kinds of encryption.
var encryptions = []netlab.Encryption{netlab.WireGuard, netlab.IPsec}

// needEncryption skips the test on kernels without this encryption: test/vm has kernels with it.
func needEncryption(t *testing.T, mode netlab.Encryption) {
	t.Helper()
	testenv.Root(t)
	if err := mode.Missing(); err != nil {
		testenv.Missing(t, "not on this kernel: "+mode.Name)
	}
}

// encrypted are the flags of an agent that encrypts.
func (n *node) encrypted(flags ...string) []string {
	return append([]string{"--encryption=" + cmp.Or(n.encryption.Name, netlab.WireGuard.Name)}, flags...)
}

// giveKeys gives nodes the keys that they have before their agents start.
func (c *cluster) giveKeys(nodes []*node, mode netlab.Encryption) {
	c.t.Helper()
	for _, n := range nodes {
		n.encryption = mode
		switch mode {
		case netlab.WireGuard:
			c.publish(n)
		case netlab.IPsec:
			c.writeKeys(n, 1)
		}
	}
}

// join waits until nodes with keys encrypt to each other.
func (c *cluster) join(nodes []*node) {
	c.t.Helper()
	for _, n := range nodes {
		if n.encryption == netlab.IPsec {
			c.announce(n)
		}
	}
	for _, n := range nodes {
		c.waitEncrypted(n)
	}
}

func (c *cluster) writeKeys(n *node, generations ...int) {
	c.t.Helper()
	if err := netlab.WriteKeys(n.Node, generations...); err != nil {
		c.t.Fatal(err)
	}
}

// publish makes the node's key of WireGuard, as its agent would, and writes the public one into its manifest.
func (c *cluster) publish(n *node) {
	c.t.Helper()
	annotations, err := netlab.MakeKey(n.Node)
	if err != nil {
		c.t.Fatal(err)
	}
	c.annotate(n, annotations)
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

// upEncrypted makes a lab whose nodes know each other's keys.
func upEncrypted(t *testing.T, mode netlab.Encryption, o testbed.Options, flags ...string) *cluster {
	t.Helper()
	needEncryption(t, mode)
	c := newCluster(t, o)
	c.giveKeys(c.nodes, mode)
	for _, n := range c.nodes {
		c.start(n, current(t), n.encrypted(flags...)...)
	}
	for _, n := range c.nodes {
		c.waitReady(n)
	}
	c.join(c.nodes)
	return c
}

// waitEncrypted waits until packets to all other nodes can be encrypted.
func (c *cluster) waitEncrypted(n *node) {
	c.t.Helper()
	c.waitStatus(n, func(s *agentapi.Status) error {
		for _, other := range s.Nodes {
			if other.Path != n.encryption.Name {
				return fmt.Errorf("%s reaches %s by %s: %+v", n.Name, other.Name, other.Path, other.Encryption)
			}
		}
		return nil
	})
}

// tap looks for plaintext of pods on the wire.
type tap struct{ *capture.Wire }

// tapWire watches all frames between nodes. What machines outside get and send is not encrypted.
func (c *cluster) tapWire(outside ...testbed.Netns) tap {
	c.t.Helper()
	var macs []net.HardwareAddr
	for _, netns := range outside {
		err := netns.Do(func() error {
			link, err := net.InterfaceByName(testbed.Uplink)
			if err == nil {
				macs = append(macs, link.HardwareAddr)
			}
			return err
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	w := tap{capture.NewWire(slices.Concat(c.podRanges(), c.poolRanges), macs...)}
	c.t.Cleanup(w.Stop)
	for _, n := range c.nodes {
		var err error
		if len(c.nodes) == 2 { // nothing lies between the uplinks
			err = w.Watch(n.Netns, testbed.Uplink)
		} else {
			err = w.Watch(c.lab.Switch(), c.lab.SwitchPort(n.Node))
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return w
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

// seen is how long a frame takes at most from the wire to a tap.
const seen = 200 * time.Millisecond

// expect wants encrypted packets and no others.
func (w tap) expect(t *testing.T, what string) {
	t.Helper()
	time.Sleep(seen)
	if plain := w.Plain(); len(plain) > 0 {
		t.Errorf("%s: %d packets in plaintext, the first ones %v", what, len(plain), plain[:min(3, len(plain))])
	}
	if w.Encrypted() == 0 {
		t.Errorf("%s: no encrypted packet", what)
	}
}

// wantSilent wants no plaintext that goes to a pod's addresses.
func (w tap) wantSilent(t *testing.T, what string, to *testbed.Pod) {
	t.Helper()
	time.Sleep(seen)
	for _, p := range w.Plain() {
		if slices.Contains(to.Addresses, p.Destination) {
			t.Errorf("%s: plaintext: %s", what, p)
			return
		}
	}
}
