package route

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// The node's packets to an address in NodesTable take its route, except outer packets, those from other addresses of the node, and those of an
// excepted port. The rules follow by difference, and go.
func TestNodes(t *testing.T) {
	to4, to6, outside := netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("2001:db8:2::2"), netip.MustParseAddr("203.0.113.9")
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		if err := errors.Join(devicetest.AddVeth("up", "up-peer"), devicetest.AddVeth("tun", "tun-peer"), devicetest.AddAddress("up", "192.0.2.1/24"), devicetest.AddAddress("up", "2001:db8::1/64"), devicetest.AddAddress("up", "203.0.113.9/32"),
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)); err != nil {
			return err
		}
		up, err := devicetest.IndexOf("up")
		if err != nil {
			return err
		}
		tun, err := devicetest.IndexOf("tun")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{to4, to6} {
			p := netip.PrefixFrom(a, a.BitLen())
			if err := errors.Join(Add(Route{Prefix: p, Device: up}), Add(Route{Prefix: p, Device: tun, Table: NodesTable})); err != nil {
				return err
			}
		}
		takes := func(what string, a netip.Addr, o netlink.RouteGetOptions, want int) {
			t.Helper()
			got, err := netlink.RouteGetWithOptions(a.AsSlice(), &o)
			if err != nil || len(got) != 1 || got[0].LinkIndex != want {
				t.Errorf("%s to %s takes %v, want device %d (error %v)", what, a, got, want, err)
			}
		}
		want := &Nodes{Plaintext: []Plaintext{{unix.IPPROTO_ESP, 0}, {unix.IPPROTO_TCP, 6443}}, Outside: []netip.Addr{outside}}
		const rules = 1 + 1 + 2 + 1 + 1 // of each family: the mark, ESP, a port at either end, the lookup, the end
		for _, step := range []struct {
			want    *Nodes
			changed int
		}{{want, 2*rules + 1}, {want, 0}, {&Nodes{Plaintext: want.Plaintext[:1], Outside: want.Outside}, 4}, {want, 4}} {
			if changed, err := SyncNodes(step.want); err != nil || changed != step.changed {
				t.Errorf("%d rules changed, want %d (error %v)", changed, step.changed, err)
			}
		}
		if changed, err := SyncTunnelRules(nil); err != nil || changed != 0 {
			t.Errorf("%d rules for tunnels changed (error %v)", changed, err)
		}
		for _, a := range []netip.Addr{to4, to6} {
			takes("a packet", a, netlink.RouteGetOptions{}, tun)
			takes("an outer packet", a, netlink.RouteGetOptions{Mark: OuterMark}, up)
			takes("one with another mark", a, netlink.RouteGetOptions{Mark: 0x4000}, tun)
		}
		takes("a packet from another address", to4, netlink.RouteGetOptions{SrcAddr: outside.AsSlice()}, up)
		takes("a packet from the node's address", to4, netlink.RouteGetOptions{SrcAddr: netip.MustParseAddr("192.0.2.1").AsSlice()}, tun)
		if changed, err := SyncNodes(nil); err != nil || changed != 2*rules+1 {
			t.Errorf("%d rules removed, want %d (error %v)", changed, 2*rules+1, err)
		}
		left, err := ourRules()
		if err != nil || len(left) > 0 {
			t.Errorf("rules left: %v (%v)", left, err)
		}
		for _, a := range []netip.Addr{to4, to6} {
			takes("a packet without rules", a, netlink.RouteGetOptions{}, up)
		}
		return nil
	})
}

// A socket that has a route takes that of NodesTable once it is there, and the other one again once it is gone.
func TestNodesOfSockets(t *testing.T) {
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		if err := errors.Join(devicetest.AddVeth("up", "up-peer"), devicetest.AddVeth("tun", "tun-peer")); err != nil {
			return err
		}
		up, err := devicetest.IndexOf("up")
		if err != nil {
			return err
		}
		tun, err := devicetest.IndexOf("tun")
		if err != nil {
			return err
		}
		for _, name := range []string{"up", "tun"} { // packets need no neighbour
			if link, err := netlink.LinkByName(name); err != nil {
				return err
			} else if err := netlink.LinkSetARPOff(link); err != nil {
				return err
			}
		}
		if _, err := SyncNodes(&Nodes{}); err != nil {
			return err
		}
		for _, c := range []struct{ own, to string }{{"192.0.2.1/24", "192.0.2.2"}, {"2001:db8::1/64", "2001:db8::2"}} {
			if err := devicetest.AddAddress("up", c.own); err != nil {
				return err
			}
			conn, err := net.Dial("udp", netip.AddrPortFrom(netip.MustParseAddr(c.to), 9).String())
			if err != nil {
				return err
			}
			defer conn.Close()
			a := netip.MustParseAddr(c.to)
			for _, step := range []struct {
				routes []Route
				device int
			}{{nil, up}, {[]Route{{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: tun, Table: NodesTable}}, tun}, {nil, up}} {
				if _, err := Sync(step.routes); err != nil {
					return err
				}
				before, err := netlink.LinkByIndex(step.device)
				if err != nil {
					return err
				}
				const packets = 50 // more than the kernel sends itself
				for range packets {
					if _, err := conn.Write([]byte("x")); err != nil {
						return err
					}
				}
				after, err := netlink.LinkByIndex(step.device)
				if err != nil {
					return err
				}
				if sent := after.Attrs().Statistics.TxPackets - before.Attrs().Statistics.TxPackets; sent < packets {
					t.Errorf("with routes %v: %d packets to %s by device %d, want %d", step.routes, sent, a, step.device, packets)
				}
			}
		}
		left, err := ourRules()
		if err != nil || len(left) != len((&Nodes{}).rules()) {
			t.Errorf("rules left: %v (%v)", left, err)
		}
		return nil
	})
}
