package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// manyPeers is how many other nodes TestEncryptionManyPeers has.
const manyPeers = 1000

// restTime is how long an agent is watched that has nothing to do.
const restTime = 30 * time.Second

// peerObject is the Node of a peer in another subnet, with what an agent of this mode announces. Each one announces something new.
func peerObject(t *testing.T, i int, mode netlab.Encryption) *corev1.Node {
	t.Helper()
	high, low := byte(i>>8), byte(i)
	o := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	o.Name = fmt.Sprintf("peer-%04d", i)
	o.Spec.PodCIDRs = []string{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64 + high, low, 0}), 24).String(), fmt.Sprintf("fd64:0:0:%x::/64", i+1),
	}
	o.Spec.PodCIDR = o.Spec.PodCIDRs[0]
	o.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: netip.AddrFrom4([4]byte{172, 20, high, low}).String()},
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd65::%x", i+1)},
	}
	switch mode.Name {
	case netlab.WireGuard.Name:
		key, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		o.Annotations = map[string]string{v1alpha1.AnnotationWireGuardKey: key.PublicKey().String()}
	case netlab.IPsec.Name:
		epoch := make([]byte, 16)
		if _, err := rand.Read(epoch); err != nil {
			t.Fatal(err)
		}
		o.Annotations = map[string]string{v1alpha1.AnnotationIPsec: hex.EncodeToString(epoch) + " 1"}
	}
	return o
}

// writePeers replaces the manifest of all peers.
func (c *cluster) writePeers(peers []*corev1.Node) {
	c.t.Helper()
	var all bytes.Buffer
	for _, o := range peers {
		text, err := yaml.Marshal(o)
		if err != nil {
			c.t.Fatal(err)
		}
		fmt.Fprintf(&all, "---\n%s", text)
	}
	c.writeManifest("peers.yaml", all.Bytes())
}

// waitPeers waits until the node reaches peers by this path, as many as that. It returns how long that took.
func (c *cluster) waitPeers(n *node, path string, count int) time.Duration {
	c.t.Helper()
	begin := time.Now()
	c.waitStatus(n, func(s *agentapi.Status) error {
		by := map[string]int{}
		for _, other := range s.Nodes {
			if strings.HasPrefix(other.Name, "peer-") {
				by[other.Path]++
			}
		}
		if by[path] != count {
			return fmt.Errorf("%s reaches peers by %v, want %d by %s: %.500v", n.Name, by, count, path, s.Problems)
		}
		return nil
	})
	return time.Since(begin)
}

// sessions are what the kernel encrypts and decrypts with: public keys of WireGuard's peers, and SPIs of IPsec.
func (c *cluster) sessions(n *node) map[string]bool {
	c.t.Helper()
	all := map[string]bool{}
	err := n.Netlink(func(h *netlink.Handle) error {
		states, err := h.XfrmStateList(netlink.FAMILY_ALL)
		if err != nil && n.encryption.Name == netlab.IPsec.Name {
			return err
		}
		for _, s := range states {
			all[fmt.Sprint(s.Dst, s.Spi)] = true
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if n.encryption.Name == netlab.WireGuard.Name {
		for _, key := range c.peersOf(n) {
			all[key] = true
		}
	}
	return all
}

// cost is the memory of the node's agent in MiB, at most and now, and the CPU time that it has used, in seconds.
func (c *cluster) cost(n *node) (most, now uint64, cpu float64) {
	c.t.Helper()
	process, err := procfs.NewProc(n.agent.Cmd.Process.Pid)
	if err != nil {
		c.t.Fatal(err)
	}
	status, err := process.NewStatus()
	if err != nil {
		c.t.Fatal(err)
	}
	stat, err := process.Stat()
	if err != nil {
		c.t.Fatal(err)
	}
	return status.VmHWM >> 20, status.VmRSS >> 20, stat.CPUTime()
}

// A node has a thousand peers: all come at once, one changes, the agent restarts and keeps what the kernel has, and all reboot at
// once. The log has the times, and the agent's cost at rest, beside those of nodes that do not encrypt.
func TestEncryptionManyPeers(t *testing.T) {
	for _, mode := range []netlab.Encryption{{Name: "none"}, netlab.WireGuard, netlab.IPsec} {
		t.Run(mode.Name, func(t *testing.T) {
			c, n, path := upAlone(t, mode)
			peers := make([]*corev1.Node, manyPeers)
			announce := func() {
				for i := range peers {
					peers[i] = peerObject(t, i, mode)
				}
				c.writePeers(peers)
			}
			announce()
			t.Logf("all peers come: %v", c.waitPeers(n, path, manyPeers))
			before := c.sessions(n)

			_, _, begin := c.cost(n)
			time.Sleep(restTime)
			most, now, end := c.cost(n)
			t.Logf("memory at most %d MiB, at rest %d MiB; CPU at rest %.2f %%", most, now, 100*(end-begin)/restTime.Seconds())

			gone := slices.Delete(slices.Clone(peers), manyPeers/2, manyPeers/2+1)
			c.writePeers(gone)
			t.Logf("one peer goes: %v", c.waitPeers(n, path, manyPeers-1))
			c.writePeers(peers)
			t.Logf("one peer comes: %v", c.waitPeers(n, path, manyPeers))
			if back := c.sessions(n); !maps.Equal(back, before) {
				t.Errorf("after one peer went and came the kernel has %d keys, and had %d others or more", len(back), len(before))
			}

			started := time.Now()
			c.restart(n, current(t), n.encrypted()...)
			c.waitPeers(n, path, manyPeers)
			t.Logf("the agent restarts: %v", time.Since(started))
			if kept := c.sessions(n); !maps.Equal(kept, before) {
				t.Errorf("after a restart of the agent the kernel has %d keys, and had %d others or more", len(kept), len(before))
			}

			started = time.Now()
			announce()
			if encrypts(mode) {
				eventually(t, func() error {
					after := c.sessions(n)
					kept := 0
					for key := range after {
						if before[key] {
							kept++
						}
					}
					if kept > 0 || len(after) != len(before) {
						return fmt.Errorf("after all peers have rebooted the kernel has %d keys of which %d are from before, want %d and 0", len(after), kept, len(before))
					}
					return nil
				})
			}
			c.waitPeers(n, path, manyPeers)
			t.Logf("all peers reboot: %v", time.Since(started))
		})
	}
}

// upAlone makes a lab with an agent of this mode on one node, and tells the path to peers.
func upAlone(t *testing.T, mode netlab.Encryption) (c *cluster, n *node, path string) {
	t.Helper()
	path = agentapi.NodePathVXLAN
	if encrypts(mode) {
		needEncryption(t, mode)
		path = mode.Name
	}
	c = newCluster(t, testbed.Options{Nodes: 1})
	n = c.nodes[0]
	c.giveKeys(c.nodes, mode)
	c.start(n, current(t), n.encrypted()...)
	c.waitReady(n)
	return c, n, path
}

func encrypts(mode netlab.Encryption) bool { return slices.Contains(encryptions, mode) }
