package datapath

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var families = []int{4, 6}

// carries checks that TCP (a megabyte each way, byte for byte), UDP and ICMP get from one pod to another.
func carries(t *testing.T, from, to place, src, dst netip.Addr) {
	t.Helper()
	to.serveTCP(t, dst)
	to.serveUDP(t, dst)
	if err := echoTCP(from.dial(t, "tcp", dst), 1<<20); err != nil {
		t.Errorf("TCP: %v", err)
	}
	udp := from.dial(t, "udp", dst)
	for _, n := range []int{1, 1000, 1452, 4000} { // the last one comes in fragments
		if err := echoUDP(udp, n); err != nil {
			t.Errorf("UDP, %d bytes: %v", n, err)
		}
	}
	if err := from.ping(t, src, dst); err != nil {
		t.Errorf("ICMP: %v", err)
	}
}

// carriesPods checks both paths in both families.
func (n *network) carriesPods(t *testing.T) {
	t.Helper()
	for _, family := range families {
		t.Run(fmt.Sprintf("IPv%d to a pod on another node", family), func(t *testing.T) {
			carries(t, n.a1.place, n.b1.place, n.a1.addr(family), n.b1.addr(family))
		})
		t.Run(fmt.Sprintf("IPv%d to a pod here", family), func(t *testing.T) {
			carries(t, n.a1.place, n.a2.place, n.a1.addr(family), n.a2.addr(family))
		})
	}
}

// dropsNothing fails for every drop counter of either node that is not zero.
func (n *network) dropsNothing(t *testing.T) {
	t.Helper()
	for _, node := range []*node{n.a, n.b} {
		if d := node.dropped(t); len(d) > 0 {
			t.Errorf("node %s dropped %v", node.v4, d)
		}
	}
}

// forwarded counts what the stacks of both nodes have forwarded.
func (n *network) forwarded(t *testing.T) uint64 {
	t.Helper()
	return n.a.forwarded(t) + n.b.forwarded(t)
}

// delivered counts the packets that were sent through the host's end of the pod's device. What
// bpf_redirect_peer puts into the pod does not pass there.
func (p *pod) delivered(t *testing.T) (packets uint64) {
	t.Helper()
	p.node.do(t, func() error {
		link, err := netlink.LinkByIndex(p.pair.HostIndex)
		if err != nil {
			return err
		}
		packets = link.Attrs().Statistics.TxPackets
		return nil
	})
	return packets
}

// With eBPF routing no packet between pods is forwarded by a host's stack; without it, every one is.
func TestRedirect(t *testing.T) {
	ebpf := Config{EBPFRouting: true, Masquerade: true}
	for _, c := range []struct {
		name    string
		options options
	}{
		{"cached link-layer header", options{cfg: ebpf}},
		{"without masquerading", options{cfg: Config{EBPFRouting: true}}},
		{"unresolved neighbour", options{cfg: ebpf, unresolved: true}},
		{"clsact filters", options{cfg: ebpf, legacy: true}},
		{"kernel routing", options{cfg: Config{Masquerade: true}}},
		{"kernel routing without masquerading", options{}},
		{"kernel routing with clsact filters", options{cfg: Config{Masquerade: true}, legacy: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, c.options)
			before, intoDevice := n.forwarded(t), n.b1.delivered(t)+n.a2.delivered(t)
			n.carriesPods(t)
			by := n.forwarded(t) - before
			intoDevice = n.b1.delivered(t) + n.a2.delivered(t) - intoDevice
			// The node itself sends a few: multicast listener reports and the like.
			if few := intoDevice < 20; few != c.options.cfg.EBPFRouting {
				t.Errorf("%d packets went through the host's ends of the receivers' devices", intoDevice)
			}
			if c.options.cfg.EBPFRouting && by != 0 {
				t.Errorf("the stacks have forwarded %d packets", by)
			}
			if !c.options.cfg.EBPFRouting && by < 200 {
				t.Errorf("the stacks have forwarded only %d packets", by)
			}
			n.dropsNothing(t)
		})
	}
}

// While the lease holds, the link-layer address of the route is used, even if it is wrong; once it has lapsed,
// the kernel's neighbour table is.
func TestLease(t *testing.T) {
	for _, family := range families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, options{cfg: Config{EBPFRouting: true}})
			for p, r := range n.a.routes {
				if r.Kind == RouteRemote {
					r.NextHopMAC = MAC{2, 0xde, 0xad, 0, 0, 1}
					n.a.routes[p] = r
				}
			}
			if changed, err := n.a.d.Routes.Sync(n.a.routes); err != nil || changed != 4 {
				t.Fatalf("%d routes changed: %v", changed, err)
			}
			dst := n.b1.addr(family)
			server := n.b1.listenUDP(t, dst)
			client := n.a1.dial(t, "udp", dst)
			write(t, client, "to a node that does not exist")
			expectNothing(t, server)

			before := n.forwarded(t)
			if err := n.a.d.Lease.Revoke(); err != nil {
				t.Fatal(err)
			}
			write(t, client, "without a lease")
			if err := expect(server, []byte("without a lease")); err != nil {
				t.Error(err)
			}
			if err := n.a.d.Lease.Renew(1); err != nil { // a nanosecond
				t.Fatal(err)
			}
			awaitTick(t)
			write(t, client, "the lease has lapsed")
			if err := expect(server, []byte("the lease has lapsed")); err != nil {
				t.Error(err)
			}
			if by := n.forwarded(t) - before; by != 0 {
				t.Errorf("the stacks have forwarded %d packets", by)
			}
		})
	}
}

// awaitTick waits until the coarse clock, which the datapath reads, has passed the present.
func awaitTick(t *testing.T) {
	t.Helper()
	var now, coarse unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	for coarse.Nano() <= now.Nano()+1 {
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &coarse); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// write sends one datagram.
func write(t *testing.T, c interface{ Write([]byte) (int, error) }, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
}

// Pods and their node reach each other through the stack.
func TestPodAndNode(t *testing.T) {
	for _, cfg := range everyConfig() {
		t.Run(cfgName(cfg), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, options{cfg: cfg})
			for _, family := range families {
				a1 := n.a1.addr(family)
				for _, peer := range []struct {
					name string
					place
					a netip.Addr
				}{{"its node", n.a.place, n.a.addr(family)}, {"another node", n.b.place, n.b.addr(family)}} {
					t.Run(fmt.Sprintf("IPv%d to %s", family, peer.name), func(t *testing.T) {
						carries(t, n.a1.place, peer.place, a1, peer.a)
					})
				}
				t.Run(fmt.Sprintf("IPv%d from its node", family), func(t *testing.T) {
					carries(t, n.a.place, n.a1.place, n.a.addr(family), a1)
				})
				t.Run(fmt.Sprintf("IPv%d to itself", family), func(t *testing.T) {
					carries(t, n.a2.place, n.a2.place, n.a2.addr(family), n.a2.addr(family))
				})
			}
			n.dropsNothing(t)
		})
	}
}
