package masquerade

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/testenv"
)

var config = Config{
	PodCIDRs:  prefixes("10.1.0.0/24", "fd00:1::/64"),
	ReplyMark: 0x00100000,
	Exempt:    prefixes("10.1.0.0/24", "10.2.0.0/24", "fd00:1::/64", "fd00:2::/64", "192.0.2.1/32", "192.0.2.3/32", "2001:db8::1/128", "2001:db8::3/128"),
}

func newNamespace(t *testing.T) ns.NetNS {
	t.Helper()
	testenv.Root(t)
	made, err := testutils.NewNS()
	if err != nil {
		t.Fatalf("create network namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(made.Close(), testutils.UnmountNS(made)); err != nil {
			t.Errorf("remove network namespace: %v", err)
		}
	})
	return made
}

func inside(t *testing.T, namespace ns.NetNS, f func() error) {
	t.Helper()
	if err := namespace.Do(func(ns.NetNS) error { return f() }); err != nil {
		t.Fatal(err)
	}
}

func address(name, prefix string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	parsed, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	if parsed.IP.To4() == nil {
		if _, err := device.SetSysctl("net/ipv6/conf/"+name+"/accept_dad", "0"); err != nil {
			return err
		}
	}
	return errors.Join(netlink.AddrAdd(link, parsed), netlink.LinkSetUp(link))
}

// routeToPods sends the pods' ranges back to the node, as the other nodes of a cluster have it.
func routeToPods(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return errors.Join(
		device.AddRoute(device.Route{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Via: netip.MustParseAddr("192.0.2.1"), Device: link.Attrs().Index}),
		device.AddRoute(device.Route{Prefix: netip.MustParsePrefix("fd00:1::/64"), Via: netip.MustParseAddr("2001:db8::1"), Device: link.Attrs().Index}))
}

// newWorld makes a node that forwards, joined by its device up0 to the world, which has the addresses .2
// (world) and .3 (another node, exempt) and a route back to the pods.
func newWorld(t *testing.T) (node, world ns.NetNS) {
	t.Helper()
	node, world = newNamespace(t), newNamespace(t)
	inside(t, node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "up0"
		veth := netlink.NewVeth(attrs)
		veth.PeerName = "up0"
		veth.PeerNamespace = netlink.NsFd(int(world.Fd()))
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		_, err := device.EnableForwarding("up0", true, true)
		return errors.Join(err, address("up0", "192.0.2.1/24"), address("up0", "2001:db8::1/64"))
	})
	inside(t, world, func() error {
		err := errors.Join(address("up0", "192.0.2.2/24"), address("up0", "192.0.2.3/24"), address("up0", "2001:db8::3/64"), address("up0", "2001:db8::2/64"))
		return errors.Join(err, routeToPods("up0"))
	})
	return node, world
}

// newPod makes a pod of the node with the addresses 10.1.0.<host> and fd00:1::<host>.
func newPod(t *testing.T, node ns.NetNS, host int) ns.NetNS {
	t.Helper()
	pod := newNamespace(t)
	inside(t, node, func() error {
		pair, err := device.CreatePair(device.PairSpec{ContainerID: fmt.Sprint(host), IfName: "eth0", Netns: pod.Path()})
		if err != nil {
			return err
		}
		addresses := prefixes(fmt.Sprintf("10.1.0.%d/32", host), fmt.Sprintf("fd00:1::%d/128", host))
		for _, prefix := range addresses {
			err = errors.Join(err, device.SetNeighbour(pair.HostIndex, prefix.Addr(), pair.PodMAC),
				device.AddRoute(device.Route{Prefix: prefix, Device: pair.HostIndex}))
		}
		return errors.Join(err, device.ConfigurePod(pod.Path(), "eth0", device.PodConfig{
			Addresses: addresses, HostMAC: pair.HostMAC,
			Gateways: []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")},
		}))
	})
	return pod
}

// sourceSeen sends from the client's namespace to a server at address in the server's and returns the
// client's address as the server sees it, which it also sends back: both directions work.
func sourceSeen(t *testing.T, client, server ns.NetNS, network, address string) string {
	t.Helper()
	var seen string
	inside(t, server, func() error {
		at := net.JoinHostPort(address, "0")
		if network == "udp" {
			socket, err := net.ListenPacket(network, at)
			if err != nil {
				return err
			}
			defer socket.Close()
			go func() {
				buffer := make([]byte, 64)
				if _, from, err := socket.ReadFrom(buffer); err == nil {
					_, _ = socket.WriteTo([]byte(from.String()), from)
				}
			}()
			seen, err = ask(client, network, socket.LocalAddr().String())
			return err
		}
		listener, err := net.Listen(network, at)
		if err != nil {
			return err
		}
		defer listener.Close()
		go func() {
			if conn, err := listener.Accept(); err == nil {
				_, _ = conn.Write([]byte(conn.RemoteAddr().String()))
				_ = conn.Close()
			}
		}()
		seen, err = ask(client, network, listener.Addr().String())
		return err
	})
	host, _, err := net.SplitHostPort(seen)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func ask(client ns.NetNS, network, server string) (answer string, err error) {
	err = client.Do(func(ns.NetNS) error {
		conn, err := net.DialTimeout(network, server, 5*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		if network == "udp" {
			if _, err := conn.Write([]byte("who am I?")); err != nil {
				return err
			}
		}
		buffer := make([]byte, 64)
		n, err := conn.Read(buffer)
		answer = string(buffer[:n])
		return err
	})
	return answer, err
}

func TestMasquerade(t *testing.T) {
	node, world := newWorld(t)
	podA, podB := newPod(t, node, 5), newPod(t, node, 6)
	sync := func(want bool, config Config) {
		t.Helper()
		inside(t, node, func() error {
			changed, err := Sync(config)
			if changed != want {
				t.Errorf("changed: %v, want %v", changed, want)
			}
			return err
		})
	}
	check := func(step string, client, server ns.NetNS, address, want string) {
		t.Helper()
		for _, network := range []string{"tcp", "udp"} {
			if seen := sourceSeen(t, client, server, network, address); seen != want {
				t.Errorf("%s: %s to %s comes from %s, want %s", step, network, address, seen, want)
			}
		}
	}
	check("before", podA, world, "192.0.2.2", "10.1.0.5")
	check("before", podA, world, "2001:db8::2", "fd00:1::5")

	sync(true, config)
	sync(false, config)
	masqueraded := func(step string) {
		t.Helper()
		check(step, podA, world, "192.0.2.2", "192.0.2.1")
		check(step, podA, world, "2001:db8::2", "2001:db8::1")
		check(step+", exempt", podA, world, "192.0.2.3", "10.1.0.5")
		check(step+", exempt", podA, world, "2001:db8::3", "fd00:1::5")
		check(step+", pod to pod", podA, podB, "10.1.0.6", "10.1.0.5")
		check(step+", pod to pod", podA, podB, "fd00:1::6", "fd00:1::5")
		check(step+", pod to its node", podA, node, "192.0.2.1", "10.1.0.5")
		check(step+", the node's own", node, world, "192.0.2.2", "192.0.2.1")
		check(step+", world to pod", world, podA, "10.1.0.5", "192.0.2.2")
		check(step+", world to pod", world, podA, "fd00:1::5", "2001:db8::2")
	}
	masqueraded("set up")

	// A pod of this node that is not exempt is reached unchanged all the same, by its device.
	few := Config{PodCIDRs: config.PodCIDRs, Exempt: prefixes("192.0.2.2/32")}
	sync(true, few)
	sync(false, few)
	check("other exempt", podA, podB, "10.1.0.6", "10.1.0.5")
	check("other exempt", podA, world, "192.0.2.2", "10.1.0.5")
	check("other exempt", podA, world, "192.0.2.3", "192.0.2.1")
	sync(true, config)

	// Whatever somebody does to the table, Sync puts it right.
	for _, command := range []string{
		"flush ruleset", "flush table inet beeline", "flush set inet beeline exempt4", "delete element inet beeline pods6 { fd00:1::/64 }",
		"add rule inet beeline pods_to_world accept", "add element inet beeline exempt6 { 2001:db8::2 }", "flush chain inet beeline pods_to_world",
		"insert rule inet beeline pods_to_world accept", "add set inet beeline mine { type ipv4_addr; }",
		"add chain inet beeline pods_to_world { policy drop; }", "delete table inet beeline",
		"flush chain inet beeline replies_to_world", "insert rule inet beeline replies_to_world accept",
		"add chain inet beeline replies_to_world { policy drop; }", "add chain inet beeline mine",
		// The table of a version that marked nothing.
		"flush chain inet beeline replies_to_world; delete chain inet beeline replies_to_world",
	} {
		inside(t, node, func() error { return nft(command) })
		sync(true, config)
		sync(false, config)
		check(command, podA, world, "192.0.2.2", "192.0.2.1")
		check(command, podA, world, "2001:db8::2", "2001:db8::1")
		check(command, world, podA, "10.1.0.5", "192.0.2.2")
	}
	masqueraded("after all")

	// Only what is ours goes.
	inside(t, node, func() error {
		if err := nft("add table inet other"); err != nil {
			return err
		}
		for _, there := range []bool{true, false} {
			if removed, err := Remove(); err != nil || removed != there {
				return fmt.Errorf("removed is %v, error %w", removed, err)
			}
		}
		return nft("list table inet other")
	})
	check("removed", podA, world, "192.0.2.2", "10.1.0.5")
}

// Only what answers to the world is marked, and bits of others stay.
func TestRepliesAreMarked(t *testing.T) {
	node, world := newWorld(t)
	pod := newPod(t, node, 5)
	inside(t, node, func() error {
		if _, err := Sync(config); err != nil {
			return err
		}
		return nft(`table inet others {
			counter marked { }
			counter unmarked { }
			chain before { type filter hook postrouting priority srcnat + 5; meta mark set 0x42; }
			chain after {
				type filter hook postrouting priority srcnat + 20
				oifname != "up0" return
				ip saddr 10.1.0.5 meta mark 0x00100042 counter name marked return
				ip6 saddr fd00:1::5 meta mark 0x00100042 counter name marked return
				meta mark 0x42 counter name unmarked
			}
		}`)
	})
	count := func() (marked, unmarked uint64) {
		inside(t, node, func() error {
			connection, err := nftables.New()
			if err != nil {
				return err
			}
			counters, err := connection.GetObjects(&nftables.Table{Name: "others", Family: nftables.TableFamilyINet})
			for _, c := range counters {
				switch c := c.(type) {
				case *nftables.CounterObj:
					if c.Name == "marked" {
						marked = c.Packets
					} else {
						unmarked = c.Packets
					}
				}
			}
			return err
		})
		return marked, unmarked
	}
	expect := func(what string, wantMarked bool, act func()) {
		t.Helper()
		marked, unmarked := count()
		act()
		marked2, unmarked2 := count()
		if marked2 > marked != wantMarked {
			t.Errorf("%s: %d packets are marked", what, marked2-marked)
		}
		if !wantMarked && unmarked2 == unmarked {
			t.Errorf("%s: nothing seen", what)
		}
	}
	for _, family := range []struct{ pod, world, exempt string }{
		{"10.1.0.5", "192.0.2.2", "192.0.2.3"}, {"fd00:1::5", "2001:db8::2", "2001:db8::3"},
	} {
		for _, network := range []string{"tcp", "udp"} {
			expect("world to pod, "+network, true, func() { sourceSeen(t, world, pod, network, family.pod) })
			expect("pod to world, "+network, false, func() { sourceSeen(t, pod, world, network, family.world) })
			expect("pod to another node, "+network, false, func() { sourceSeen(t, pod, world, network, family.exempt) })
		}
		expect("port unreachable", true, func() {
			const nobody = "9"
			if _, err := ask(world, "udp", net.JoinHostPort(family.pod, nobody)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("a port where nobody listens gives %v", err)
			}
		})
	}
}

// Where translation fails, for whatever reason, the packet stays here.
func TestNothingLeavesUntranslated(t *testing.T) {
	node, world := newWorld(t)
	pod := newPod(t, node, 5)
	inside(t, node, func() error {
		if _, err := Sync(config); err != nil {
			return err
		}
		return nft("flush chain inet beeline " + translating)
	})
	for _, to := range []string{"192.0.2.2", "2001:db8::2"} {
		if answer, err := ask(pod, "udp", net.JoinHostPort(to, "9")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s without translation: answer %q, error %v", to, answer, err)
		}
	}
	inside(t, node, func() error {
		output, err := exec.Command("nft", "list", "table", "inet", tableName).CombinedOutput()
		if n := strings.Count(string(output), "counter packets 1 "); n != 2 {
			t.Errorf("%d rules have stopped a packet, want 2:\n%s", n, output)
		}
		return err
	})
	for _, to := range []string{"192.0.2.3", "2001:db8::3"} { // exempt
		sourceSeen(t, pod, world, "udp", to)
	}
}

func nft(command string) error {
	if output, err := exec.Command("nft", command).CombinedOutput(); err != nil {
		return fmt.Errorf("nft %s: %w: %s", command, err, output)
	}
	return nil
}

// What `nft` shows is what the comments in this package promise.
func TestTableIsReadable(t *testing.T) {
	inside(t, newNamespace(t), func() error {
		if _, err := Sync(config); err != nil {
			return err
		}
		output, err := exec.Command("nft", "list", "table", "inet", tableName).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		t.Logf("%s", output)
		for _, want := range []string{
			"type nat hook postrouting priority srcnat; policy accept;",
			`oifname "lo" return comment "stays on this node"`,
			`oifname "bl*" return comment "to a pod of this node"`,
			`ip saddr @pods4 ip daddr != @exempt4 counter packets 0 bytes 0 masquerade fully-random comment "pods to the world, IPv4"`,
			`ip6 saddr @pods6 ip6 daddr != @exempt6 counter packets 0 bytes 0 masquerade fully-random comment "pods to the world, IPv6"`,
			"type filter hook postrouting priority srcnat + 10; policy accept;",
			`ct direction reply ct state established,related ip saddr @pods4 ip daddr != @exempt4 counter packets 0 bytes 0 meta mark set meta mark | 0x00100000 comment "replies keep the pod's address, IPv4"`,
			`ct direction reply ct state established,related ip6 saddr @pods6 ip6 daddr != @exempt6 counter packets 0 bytes 0 meta mark set meta mark | 0x00100000 comment "replies keep the pod's address, IPv6"`,
			`ip saddr @pods4 ip daddr != @exempt4 counter packets 0 bytes 0 drop comment "nothing else of a pod leaves untranslated, IPv4"`,
			`ip6 saddr @pods6 ip6 daddr != @exempt6 counter packets 0 bytes 0 drop comment "nothing else of a pod leaves untranslated, IPv6"`,
			"elements = { 10.1.0.0/24 }",
			"169.254.0.0/16", "224.0.0.0/4", "255.255.255.255", "fe80::/10", "ff00::/8",
		} {
			if !strings.Contains(string(output), want) {
				t.Errorf("%q is missing", want)
			}
		}
		return nil
	})
}

// A transaction that the kernel refuses leaves what was there.
func TestRefusedTransactionChangesNothing(t *testing.T) {
	inside(t, newNamespace(t), func() error {
		if _, err := Sync(config); err != nil {
			return err
		}
		connection, err := nftables.New()
		if err != nil {
			return err
		}
		broken := layoutOf(config)
		absent := ipv4
		absent.pods = "absent"
		broken.chains[0].rules = append(broken.chains[0].rules, rule{"no such set", masquerade(absent)})
		if err := replace(connection, broken, true); err == nil {
			t.Error("no error")
		}
		changed, err := Sync(config)
		if changed {
			t.Error("something had changed")
		}
		return err
	})
}

// One family only, and no ranges at all.
func TestSyncWithEmptySets(t *testing.T) {
	inside(t, newNamespace(t), func() error {
		for _, config := range []Config{{}, {PodCIDRs: prefixes("10.1.0.0/24")}, {PodCIDRs: prefixes("fd00:1::/64")}, {PodCIDRs: prefixes("0.0.0.0/0", "::/0")}} {
			for _, want := range []bool{true, false} {
				changed, err := Sync(config)
				if err != nil {
					return fmt.Errorf("%v: %w", config, err)
				}
				if changed != want {
					t.Errorf("%v: changed %v, want %v", config, changed, want)
				}
			}
		}
		return nil
	})
}
