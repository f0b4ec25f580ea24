package ipsec

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// end is a node in a network namespace, with the addresses of pods on lo.
type end struct {
	in    ns.NetNS
	outer netip.Addr
	pods  []netip.Addr
}

// twoNodes are on one link.
func twoNodes(t *testing.T) (a, b end) {
	a = end{devicetest.NewNode(t), netip.MustParseAddr("192.0.2.1"), []netip.Addr{netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("fd00:1::1")}}
	b = end{testenv.NewNetns(t), netip.MustParseAddr("192.0.2.2"), []netip.Addr{netip.MustParseAddr("10.1.2.1"), netip.MustParseAddr("fd00:2::1")}}
	devicetest.Inside(t, a.in, func() error {
		link, err := netlink.LinkByName("wire")
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(link, int(b.in.Fd()))
	})
	devicetest.Inside(t, b.in, func() error {
		link, err := netlink.LinkByName("wire")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(link), devicetest.AddAddress("wire", "192.0.2.2/24"), devicetest.AddAddress("wire", "2001:db8::2/64"))
	})
	for _, e := range []end{a, b} {
		devicetest.Inside(t, e.in, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetUp(lo), devicetest.AddAddress("lo", e.pods[0].String()+"/32"), devicetest.AddAddress("lo", e.pods[1].String()+"/128"))
		})
	}
	return a, b
}

// sync makes the tunnels to the other node, with keys of this generation, and routes to its pods.
func (e end) sync(t *testing.T, other end, number, generation int, outer [2]netip.Addr) {
	t.Helper()
	devicetest.Inside(t, e.in, func() error {
		out, in := tunnelsOf(number, generation), tunnelsOf(1-number, generation)
		p := Peer{Local: outer[0], Remote: outer[1], In: in, Out: out, Use: map[bool]uint32{false: out[0].SPI, true: out[1].SPI}}
		for _, a := range other.pods {
			p.Prefixes = append(p.Prefixes, netip.PrefixFrom(a, a.BitLen()))
		}
		done, err := syncNow(Spec{MTU: MTU(1500, outer[0]), Addresses: []netip.Addr{e.outer}, Peers: []Peer{p}}, func(int) error { return nil })
		if err != nil {
			return err
		}
		for i, a := range other.pods {
			err = errors.Join(err, netlink.RouteReplace(&netlink.Route{Dst: rtnl.IPNet(netip.PrefixFrom(a, a.BitLen())), LinkIndex: done.Index, Src: e.pods[i].AsSlice(), Scope: netlink.SCOPE_LINK}))
		}
		return err
	})
}

// sends sends a packet to each pod of the other node, and reports whether all arrive.
func (e end) sends(other end, size int) error {
	for _, a := range other.pods {
		var listener *net.UDPConn
		if err := other.in.Do(func(ns.NetNS) (err error) {
			listener, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
			return err
		}); err != nil {
			return err
		}
		defer listener.Close()
		to := listener.LocalAddr().(*net.UDPAddr)
		if err := e.in.Do(func(ns.NetNS) error {
			conn, err := net.DialUDP("udp", nil, to)
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write(make([]byte, size))
			return err
		}); err != nil {
			return err
		}
		_ = listener.SetReadDeadline(time.Now().Add(2 * time.Second))
		if n, err := listener.Read(make([]byte, 2000)); err != nil || n != size {
			return fmt.Errorf("to %s: %d bytes, %w", a, n, err)
		}
	}
	return nil
}

// The tunnels carry packets of both families over each of them, at the full MTU, also while the keys change. Without a
// state of the sender's nothing arrives.
func TestTunnelsCarry(t *testing.T) {
	needIPsec(t)
	for _, outer := range [][2]netip.Addr{
		{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
		{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")},
	} {
		t.Run(outer[0].String(), func(t *testing.T) {
			a, b := twoNodes(t)
			back := [2]netip.Addr{outer[1], outer[0]}
			a.sync(t, b, 0, 0, outer)
			b.sync(t, a, 1, 0, back)
			works := func(what string) {
				t.Helper()
				for _, size := range []int{1, MTU(1500, outer[0]) - 40 - 8} {
					if err := errors.Join(a.sends(b, size), b.sends(a, size)); err != nil {
						t.Errorf("%s, %d bytes: %v", what, size, err)
					}
				}
			}
			works("at first")
			var traffic map[netip.Addr]map[uint32]Traffic
			devicetest.Inside(t, a.in, func() (err error) {
				traffic, err = Traffics()
				return err
			})
			for _, tunnel := range tunnelsOf(0, 0) {
				if got := traffic[outer[1]][tunnel.SPI]; got.Packets != 2 || got.Bytes == 0 || got.Rejected != 0 {
					t.Errorf("tunnel %#x has carried %+v, want 2 packets", tunnel.SPI, got)
				}
			}
			a.sync(t, b, 0, 1, outer)
			if err := a.sends(b, 1); err == nil {
				t.Error("what another key has encrypted arrives")
			}
			b.sync(t, a, 1, 1, back)
			works("with other keys")
		})
	}
}
