package fwd_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// deliveredPod counts the packets that were sent through the host's end of the pod's device. What
// bpf_redirect_peer puts into the pod does not pass there.
func deliveredPod(p *netlab.Pod, t *testing.T) (packets uint64) {
	t.Helper()
	p.Node.Do(t, func() error {
		link, err := netlink.LinkByIndex(p.Pair.HostIndex)
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
	ebpf := config.Datapath{EBPFRouting: true, Masquerade: true}
	for _, c := range []struct {
		name    string
		options netlab.Options
	}{
		{"cached link-layer header", netlab.Options{Cfg: ebpf}},
		{"without masquerading", netlab.Options{Cfg: config.Datapath{EBPFRouting: true}}},
		{"unresolved neighbour", netlab.Options{Cfg: ebpf, Unresolved: true}},
		{"clsact filters", netlab.Options{Cfg: ebpf, Legacy: true}},
		{"kernel routing", netlab.Options{Cfg: config.Datapath{Masquerade: true}}},
		{"kernel routing without masquerading", netlab.Options{}},
		{"kernel routing with clsact filters", netlab.Options{Cfg: config.Datapath{Masquerade: true}, Legacy: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, c.options)
			before, intoDevice := n.Forwarded(t), deliveredPod(n.B1, t)+deliveredPod(n.A2, t)
			n.CarriesPods(t)
			by := n.Forwarded(t) - before
			intoDevice = deliveredPod(n.B1, t) + deliveredPod(n.A2, t) - intoDevice
			// The node itself sends a few: multicast listener reports and the like. What a netkit pod sends to another pod of the
			// node passes the host end of the receiver.
			past := c.options.Cfg.EBPFRouting && testenv.DeviceKind() != "netkit"
			if few := intoDevice < 20; few != past {
				t.Errorf("%d packets went through the host's ends of the receivers' devices", intoDevice)
			}
			if c.options.Cfg.EBPFRouting && by != 0 {
				t.Errorf("the stacks have forwarded %d packets", by)
			}
			if !c.options.Cfg.EBPFRouting && by < 200 {
				t.Errorf("the stacks have forwarded only %d packets", by)
			}
			n.DropsNothing(t)
		})
	}
}

// While the lease holds, the link-layer address of the route is used, even if it is wrong; once it has lapsed,
// the kernel's neighbour table is.
func TestLease(t *testing.T) {
	for _, family := range fixtures.Families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true}})
			for p, r := range n.A.Routes {
				if r.Kind == fwd.RouteRemote {
					r.NextHopMAC = fwd.MAC{2, 0xde, 0xad, 0, 0, 1}
					n.A.Routes[p] = r
				}
			}
			if changed, err := n.A.D.Routes.Sync(n.A.Routes); err != nil || changed != 4 {
				t.Fatalf("%d routes changed: %v", changed, err)
			}
			dst := n.B1.Addr(family)
			server := n.B1.ListenUDP(t, dst)
			client := n.A1.Dial(t, "udp", dst)
			fixtures.Write(t, client, "to a node that does not exist")
			netlab.ExpectNothing(t, server)

			before := n.Forwarded(t)
			if err := n.A.D.Lease.Revoke(); err != nil {
				t.Fatal(err)
			}
			fixtures.Write(t, client, "without a lease")
			if err := netlab.Expect(server, []byte("without a lease")); err != nil {
				t.Error(err)
			}
			if err := n.A.D.Lease.Renew(1); err != nil { // a nanosecond
				t.Fatal(err)
			}
			fixtures.AwaitTick(t)
			fixtures.Write(t, client, "the lease has lapsed")
			if err := netlab.Expect(server, []byte("the lease has lapsed")); err != nil {
				t.Error(err)
			}
			if by := n.Forwarded(t) - before; by != 0 {
				t.Errorf("the stacks have forwarded %d packets", by)
			}
		})
	}
}

// Pods and their node reach each other through the stack.
func TestPodAndNode(t *testing.T) {
	for _, cfg := range fixtures.EveryConfig() {
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg})
			for _, family := range fixtures.Families {
				a1 := n.A1.Addr(family)
				for _, peer := range []struct {
					name string
					netlab.Netns
					a netip.Addr
				}{{"its node", n.A.Netns, n.A.Addr(family)}, {"another node", n.B.Netns, n.B.Addr(family)}} {
					t.Run(fmt.Sprintf("IPv%d to %s", family, peer.name), func(t *testing.T) {
						netlab.Carries(t, n.A1.Netns, peer.Netns, a1, peer.a)
					})
				}
				t.Run(fmt.Sprintf("IPv%d from its node", family), func(t *testing.T) {
					netlab.Carries(t, n.A.Netns, n.A1.Netns, n.A.Addr(family), a1)
				})
				t.Run(fmt.Sprintf("IPv%d to itself", family), func(t *testing.T) {
					netlab.Carries(t, n.A2.Netns, n.A2.Netns, n.A2.Addr(family), n.A2.Addr(family))
				})
			}
			n.DropsNothing(t)
		})
	}
}
