package masquerade

import (
	"net"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

func TestUntranslated(t *testing.T) {
	tests := []struct {
		name             string
		from, to         string // of the first packet
		replyTo, replyBy string // of the reply
		want             bool
	}{
		{"pod to the world", "10.1.0.5", "203.0.113.1", "10.1.0.5", "203.0.113.1", true},
		{"pod to the world, IPv6", "fd00:1::5", "2001:db8:f::1", "fd00:1::5", "2001:db8:f::1", true},
		{"translated", "10.1.0.5", "203.0.113.1", "192.0.2.1", "203.0.113.1", false},
		{"pod to another node's pod", "10.1.0.5", "10.2.0.5", "10.1.0.5", "10.2.0.5", false},
		{"pod to a Service of pods", "10.1.0.5", "10.96.0.1", "10.1.0.5", "10.2.0.5", false},
		{"pod to a Service of the world", "10.1.0.5", "10.96.0.1", "10.1.0.5", "203.0.113.1", true},
		{"pod to multicast", "10.1.0.5", "224.0.0.251", "10.1.0.5", "224.0.0.251", false},
		{"world to pod", "203.0.113.1", "10.1.0.5", "203.0.113.1", "10.1.0.5", false},
		{"another node's pod", "10.2.0.5", "203.0.113.1", "10.2.0.5", "203.0.113.1", false},
		{"node to the world", "192.0.2.1", "203.0.113.1", "192.0.2.1", "203.0.113.1", false},
	}
	for _, test := range tests {
		flow := &netlink.ConntrackFlow{
			Forward: netlink.IPTuple{SrcIP: net.ParseIP(test.from), DstIP: net.ParseIP(test.to)},
			Reverse: netlink.IPTuple{SrcIP: net.ParseIP(test.replyBy), DstIP: net.ParseIP(test.replyTo)},
		}
		if got := untranslated(config).MatchConntrackFlow(flow); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if untranslated(config).MatchConntrackFlow(&netlink.ConntrackFlow{}) {
		t.Error("a flow without addresses")
	}
}

// seenOf sends from a socket of a pod and gives the address that a socket of the world sees.
func seenOf(t *testing.T, client net.Conn, server net.PacketConn) string {
	t.Helper()
	if _, err := client.Write([]byte("who am I?")); err != nil {
		t.Fatal(err)
	}
	if err := server.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, from, err := server.ReadFrom(make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(from.String())
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// A socket that goes on sending is translated as soon as the rules are back; one that was translated while
// they were gone stays translated, and so does what the world opened.
func TestSocketsSurviveMissingRules(t *testing.T) {
	node, world := newWorld(t)
	pod := newPod(t, node, 5)
	// Somebody else's rules keep connection tracking at work.
	inside(t, node, func() error {
		return nft("table inet others { chain forward { type filter hook forward priority 0; ct state new accept; }; }")
	})
	sync := func() {
		t.Helper()
		inside(t, node, func() error {
			changed, err := Sync(config)
			if !changed {
				t.Error("nothing changed")
			}
			return err
		})
	}
	listen := func(in ns.NetNS, address string) (socket net.PacketConn) {
		inside(t, in, func() (err error) {
			socket, err = net.ListenPacket("udp", address)
			return err
		})
		t.Cleanup(func() { socket.Close() })
		return socket
	}
	dial := func(from ns.NetNS, server net.PacketConn) (socket net.Conn) {
		inside(t, from, func() (err error) {
			socket, err = net.Dial("udp", server.LocalAddr().String())
			return err
		})
		t.Cleanup(func() { socket.Close() })
		return socket
	}
	for _, family := range []struct{ node, pod, world, worldSource string }{
		{"192.0.2.1", "10.1.0.5", "192.0.2.2:0", "192.0.2.2"},
		{"2001:db8::1", "fd00:1::5", "[2001:db8::2]:0", "2001:db8::2"},
	} {
		inside(t, node, func() error { _, err := Remove(); return err })
		server := listen(world, family.world)
		without := dial(pod, server)
		if seen := seenOf(t, without, server); seen != family.pod {
			t.Fatalf("without rules the world sees %s", seen)
		}
		opened := listen(pod, net.JoinHostPort(family.pod, "0"))
		byWorld := dial(world, opened)
		if seen := seenOf(t, byWorld, opened); seen != family.worldSource {
			t.Errorf("the pod sees %s", seen)
		}
		sync()
		if seen := seenOf(t, without, server); seen != family.node {
			t.Errorf("with rules the world sees %s", seen)
		}
		if kept, err := flow(node, family.worldSource, family.pod); err != nil || kept == nil {
			t.Errorf("the connection that the world opened is gone: %v", err)
		}
		inside(t, node, func() error { _, err := Remove(); return err })
		sync()
		if seen := seenOf(t, without, server); seen != family.node {
			t.Errorf("with rules again the world sees %s", seen)
		}
	}
}

// flow finds the tracked connection between two addresses.
func flow(node ns.NetNS, from, to string) (found *netlink.ConntrackFlow, err error) {
	err = node.Do(func(ns.NetNS) error {
		for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			all, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil {
				return err
			}
			for _, one := range all {
				if one.Forward.SrcIP.Equal(net.ParseIP(from)) && one.Forward.DstIP.Equal(net.ParseIP(to)) {
					found = one
				}
			}
		}
		return nil
	})
	return found, err
}
