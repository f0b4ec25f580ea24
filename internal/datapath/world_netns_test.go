package datapath

import (
	"fmt"
	"net/netip"
	"testing"
)

// Without masquerading the world knows the pods, and what it sends goes straight into them.
func TestWorldWithoutMasquerading(t *testing.T) {
	for _, family := range families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, options{cfg: Config{EBPFRouting: true}})
			carries(t, n.a1.place, *n.world, n.a1.addr(family), world.addr(family))
			server := n.a1.listenUDP(t, n.a1.addr(family))
			before := n.forwarded(t)
			write(t, n.world.dial(t, "udp", n.a1.addr(family)), "from the world")
			if err := expect(server, []byte("from the world")); err != nil {
				t.Error(err)
			}
			if by := n.forwarded(t) - before; by != 0 {
				t.Errorf("the stack has forwarded %d packets", by)
			}
			n.dropsNothing(t)
		})
	}
}

// With masquerading the world sees the node, and connections that it opens itself see the pod. With eBPF routing the
// stack has no part in either.
func TestWorldMasqueraded(t *testing.T) {
	for _, routing := range []bool{true, false} {
		for _, family := range families {
			cfg := Config{EBPFRouting: routing, Masquerade: true}
			t.Run(fmt.Sprintf("%s/IPv%d", cfgName(cfg), family), func(t *testing.T) {
				n := newNetwork(t, options{cfg: cfg})
				before := n.forwarded(t)
				carries(t, n.a1.place, *n.world, n.a1.addr(family), world.addr(family))

				server := n.world.listenUDP(t, n.worldOnSwitch(family))
				write(t, n.a1.dial(t, "udp", n.worldOnSwitch(family)), "who am I")
				b := make([]byte, 100)
				_, from, err := server.ReadFromUDPAddrPort(b)
				if err != nil {
					t.Fatal(err)
				}
				if from.Addr().Unmap() != n.a.addr(family) {
					t.Errorf("the world sees %s, not the node", from)
				}
				server.Close()

				// The other direction: the reply must come from the pod's own address.
				carries(t, *n.world, n.a1.place, n.worldOnSwitch(family), n.a1.addr(family))
				n.dropsNothing(t)
				if by := n.forwarded(t) - before; routing && by != 0 {
					t.Errorf("the stack has forwarded %d packets", by)
				}
			})
		}
	}
}

// worldOnSwitch is the world's address on the nodes' link, from which it opens connections.
func (n *network) worldOnSwitch(family int) netip.Addr {
	if family == 4 {
		return addr("172.30.0.9")
	}
	return addr("fd00:172:30::9")
}

// Where an uplink has no address to give, pods' addresses do not leak to the world.
func TestUnmasqueradedNeverArrives(t *testing.T) {
	for routing, program := range map[bool]string{true: bpfProgFromPod, false: bpfProgToWire} {
		cfg := Config{EBPFRouting: routing, Masquerade: true}
		t.Run(cfgName(cfg), func(t *testing.T) {
			n := newNetwork(t, options{cfg: cfg})
			if _, err := n.a.d.Uplinks.Sync(map[int]Uplink{n.a.uplink.Index: {MAC: n.a.mac, MTU: 1500}}); err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				server := n.world.listenUDP(t, world.addr(family))
				write(t, n.a1.dial(t, "udp", world.addr(family)), "masqueraded?")
				expectNothing(t, server)
			}
			n.awaitDropped(t, n.a, map[string]uint64{program + " no_masquerade_address": 2})
		})
	}
}
