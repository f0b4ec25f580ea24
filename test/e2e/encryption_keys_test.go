package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

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
	c := upEncrypted(t, netlab.WireGuard, testbed.Options{IPv6: true})
	p := c.addPods()
	w := c.tapWire()
	for _, n := range c.nodes {
		c.sysctl(n, "net/ipv4/conf/all/rp_filter", "1")
	}
	streams := c.startStreams([2]*testbed.Pod{p.a, p.far}, [2]*testbed.Pod{p.far, p.b})
	for i, n := range c.nodes {
		other := c.nodes[1-i]
		old := n.object.Annotations[v1alpha1.AnnotationWireGuardKey]
		if err := os.Remove(netlab.KeyFile(n.Node)); err != nil {
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
	c := upEncrypted(t, netlab.IPsec, testbed.Options{IPv6: true})
	first, second := c.nodes[0], c.nodes[1]
	p := c.addPods()
	w := c.tapWire()
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
