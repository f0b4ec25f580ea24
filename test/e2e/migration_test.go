package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// former is a network that the nodes had before: its DaemonSet is deleted, and its pods still run.
type former struct {
	// conflist is the name of its file among the CNI configurations.
	conflist string
	// leave returns the commands that make its leftovers on a node: own is the node's range, other and otherAddr are
	// range and address of another node.
	leave func(own, other netip.Prefix, otherAddr netip.Addr) []string
	// taken are the addresses of the node's range that it uses, as offsets.
	taken []int
	// words are words of the problem.
	words []string
}

// addrAt returns the address at an offset in a range.
func addrAt(p netip.Prefix, n int) string {
	a := p.Addr()
	for range n {
		a = a.Next()
	}
	return a.String()
}

var formerNetworks = map[string]former{
	"flannel": {
		conflist: "10-flannel.conflist",
		leave: func(own, other netip.Prefix, otherAddr netip.Addr) []string {
			return append(bridgeLeftovers(own),
				"ip link add flannel.1 type vxlan id 1 dstport 8472 nolearning",
				"ip address add "+own.Addr().String()+"/32 dev flannel.1",
				"ip link set flannel.1 up",
				"ip neighbour replace "+other.Addr().String()+" lladdr 02:00:00:00:07:02 dev flannel.1 nud permanent",
				"bridge fdb append 02:00:00:00:07:02 dev flannel.1 dst "+otherAddr.String(),
				"ip route add "+other.String()+" via "+other.Addr().String()+" dev flannel.1 onlink",
				"iptables -t nat -N FLANNEL-POSTRTG", "iptables -t nat -A POSTROUTING -j FLANNEL-POSTRTG",
				"iptables -t nat -A FLANNEL-POSTRTG -s 10.77.0.0/16 -d 10.77.0.0/16 -j RETURN",
				"iptables -t nat -A FLANNEL-POSTRTG -s 10.77.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE",
				"iptables -N FLANNEL-FWD", "iptables -A FORWARD -j FLANNEL-FWD", "iptables -A FLANNEL-FWD -s 10.77.0.0/16 -j ACCEPT",
			)
		},
		taken: []int{1, 2},
		words: []string{"dev cni0", "dev flannel.1", "ip link delete cni0", "ip link delete flannel.1"},
	},
	"calico": {
		conflist: "10-calico.conflist",
		leave: func(own, other netip.Prefix, otherAddr netip.Addr) []string {
			return []string{
				"ip link add cali0123456789a type veth peer name caliend", "ip link set cali0123456789a up", "ip link set caliend up",
				"ip route add " + addrAt(own, 1) + " dev cali0123456789a scope link", // of a running pod
				"ip route add blackhole " + addrAt(own, 0) + "/26 proto 80",
				"ip route add blackhole " + own.String() + " proto 80",
				"ip link add vxlan.calico type vxlan id 4096 dstport 4789 nolearning",
				"ip address add " + addrAt(own, 2) + "/32 dev vxlan.calico",
				"ip link set vxlan.calico up",
				"ip route add " + addrAt(other, 0) + "/26 via " + addrAt(other, 2) + " dev vxlan.calico onlink proto 80",
				"iptables -N cali-FORWARD", "iptables -I FORWARD -j cali-FORWARD", "iptables -N cali-from-wl-dispatch",
				"iptables -A cali-FORWARD -i cali+ -j cali-from-wl-dispatch", "iptables -A cali-from-wl-dispatch -j DROP",
			}
		},
		taken: []int{1, 2},
		words: []string{"dev cali0123456789a", "ip link delete cali0123456789a", "blackhole", "ip route delete blackhole", "dev vxlan.calico"},
	},
	"bridge": {
		conflist: "05-bridge.conflist", // sorts before Beeline's
		leave:    func(own, _ netip.Prefix, _ netip.Addr) []string { return bridgeLeftovers(own) },
		taken:    []int{1, 2},
		words:    []string{"dev cni0", "ip link delete cni0"},
	},
}

// bridgeLeftovers are the leftovers of the bridge plugin: the bridge with the range, a pod's device and its neighbour
// entry.
func bridgeLeftovers(own netip.Prefix) []string {
	return []string{
		"ip link add cni0 type bridge",
		"ip address add " + addrAt(own, 1) + "/" + fmt.Sprint(own.Bits()) + " dev cni0",
		"ip link set cni0 up",
		"ip link add veth0badcafe type veth peer name vethend", "ip link set veth0badcafe master cni0 up", "ip link set vethend up",
		"ip neighbour replace " + addrAt(own, 2) + " lladdr 02:00:00:00:07:01 dev cni0 nud permanent",
	}
}

// TestMigration changes node by node from another network, with its leftovers, to Beeline. Each node is ready, its new
// pods reach each other and those of other nodes, and no pod has an address of the former network. The commands in the
// problem's text clean the node.
func TestMigration(t *testing.T) {
	if _, err := exec.LookPath("iptables"); err != nil {
		testenv.Missing(t, "no iptables (Debian package iptables)")
	}
	for name, f := range formerNetworks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			migrate(t, f)
		})
	}
}

func migrate(t *testing.T, f former) {
	p := current(t)
	homes := []host{newHost(t, p), newHost(t, p)} // made before the lab, so removed after its agents have ended
	c := newCluster(t, testbed.Options{})
	hosts := map[*node]host{}
	for i, n := range c.nodes {
		other := c.nodes[1-i]
		for _, command := range f.leave(n.PodCIDRs[0], other.PodCIDRs[0], other.Addresses[0].Addr()) {
			c.onNode(n, command)
		}
		h := homes[i]
		if err := errors.Join(os.Mkdir(h.confDir, 0o755), os.WriteFile(filepath.Join(h.confDir, f.conflist), []byte("{}"), 0o600)); err != nil {
			t.Fatal(err)
		}
		hosts[n] = h
	}
	var pods []*testbed.Pod
	for _, n := range c.nodes { // as in docs/migrate.md
		h := hosts[n]
		c.start(n, p, append(h.flags(), "--cni-plugin-from", h.from)...)
		c.waitReady(n)
		if f.conflist < "10-beeline" {
			c.waitProblem(n, f.conflist+" sorts before")
		}
		if err := os.Remove(filepath.Join(h.confDir, f.conflist)); err != nil {
			t.Fatal(err)
		}
		c.waitProblem(n, append(f.words, "routes of another network", "restart the node")...)
		for i := range 2 {
			pods = append(pods, c.addPod(n, fmt.Sprintf("%s-%d", n.Name, i)))
		}
		for _, pod := range pods[len(pods)-2:] {
			for _, at := range f.taken {
				if addr := netip.MustParseAddr(addrAt(n.PodCIDRs[0], at)); slices.Contains(pod.Addresses, addr) {
					t.Errorf("pod %s has %s, which the former network has", pod.Name, addr)
				}
			}
			if err := c.reach(asPod(n, pod), pod); err != nil {
				t.Errorf("node %s to its own pod: %v", n.Name, err)
			}
		}
		for _, from := range pods {
			for _, to := range pods {
				if from == to {
					continue
				}
				if err := c.reach(from, to); err != nil {
					t.Errorf("with the leftovers: %v", err)
				}
			}
		}
	}
	for _, n := range c.nodes { // run the commands in the problems
		c.waitStatus(n, func(s *agentapi.Status) error {
			for _, problem := range s.Problems {
				for _, command := range cleanupCommands(problem) {
					_, _ = n.Output(t.Context(), "sh", "-c", command) // the previous round may have run it
				}
			}
			if len(s.Problems) > 0 {
				return fmt.Errorf("problems %q", s.Problems)
			}
			return nil
		})
	}
	c.reachAll(pods, 1)
}

var advice = regexp.MustCompile(`\((ip [^)]*)\)`)

// cleanupCommands returns the commands in the text of a problem.
func cleanupCommands(problem string) (commands []string) {
	for _, found := range advice.FindAllStringSubmatch(problem, -1) {
		for command := range strings.SplitSeq(found[1], "; ") {
			if strings.HasPrefix(command, "ip ") {
				commands = append(commands, command)
			}
		}
	}
	return commands
}

// onNode runs a command on a node.
func (c *cluster) onNode(n *node, command string) {
	c.t.Helper()
	words := strings.Fields(command)
	if _, err := n.Output(c.t.Context(), words[0], words[1:]...); err != nil {
		c.t.Fatalf("%s: %s: %v", n.Name, command, err)
	}
}
