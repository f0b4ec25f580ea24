package lb_test

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/service"
)

// hashOf is service_hash of bpf/lib/lb/service.h: MurmurHash3 (x86, 32 bits) over the client's address, both ports and the protocol.
func hashOf(client netip.AddrPort, port uint16, protocol uint8) uint32 {
	a := client.Addr().As16()
	var words []uint32
	for i := 0; i < len(a); i += 4 {
		words = append(words, binary.NativeEndian.Uint32(a[i:]))
	}
	words = append(words, uint32(bpf.NetworkOrder(client.Port()))<<16|uint32(bpf.NetworkOrder(port)), uint32(protocol))
	var h uint32
	for _, w := range words {
		h ^= bits.RotateLeft32(w*0xcc9e2d51, 15) * 0x1b873593
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
	}
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// For any client the programs choose the backend that the table names, with entries of one byte and of two, at tc and at XDP.
func TestMaglevChoices(t *testing.T) {
	for _, backends := range []int{1, 3, 250, 300} {
		r := harness.NewServices(t, config.Datapath{})
		random := rand.New(rand.NewPCG(uint64(backends), 1))
		for _, family := range fixtures.Families {
			frontend := netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30500)
			var all []netip.AddrPort
			for i, a := 0, fixtures.PodB.Addr(family); i < backends; i, a = i+1, a.Next() {
				if family == 4 && i == 200 {
					a = fixtures.Addr("10.1.3.2")
				}
				all = append(all, netip.AddrPortFrom(a, 8080))
			}
			port := service.Port{Name: service.PortName{Service: cluster.Key{Name: "spread"}, Number: uint16(family), Protocol: cluster.UDP}}
			b := service.Backends{Addresses: all, Maglev: true}
			port.Entries = []service.Entry{{
				Frontend: service.Frontend{Address: frontend.Addr(), Port: frontend.Port(), Protocol: cluster.UDP},
				Kind:     service.KindNodePort, Internal: b, External: b,
			}}
			if err := r.D.Services.Apply([]service.Port{port}, nil); err != nil {
				t.Fatal(err)
			}
			addresses := make([]netip.Addr, len(all))
			for i, b := range all {
				addresses[i] = b.Addr()
			}
			size := service.MaglevSize(len(all))
			table := service.Maglev(addresses, size)
			for range 500 {
				raw := fixtures.External.Addr(family).AsSlice()
				binary.BigEndian.PutUint16(raw[len(raw)-2:], uint16(random.Uint32()))
				from, _ := netip.AddrFromSlice(raw)
				client := netip.AddrPortFrom(from, uint16(1+random.IntN(65535)))
				program := []string{bpf.ProgFromWire, bpf.ProgWireXdp}[random.IntN(2)]
				p := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(client.Addr(), frontend.Addr()).Udp(client.Port(), frontend.Port())
				r.Netns.Do(func() { _, _ = r.Run(harness.Run{Program: program, In: p.Bytes()}) })
				var got bpf.NatEntry
				if err := r.D.Objects.Maps.NatPending.Lookup(bpf.TupleOf(client, frontend, fixtures.ProtoUDP), &got); err != nil {
					t.Fatalf("%s of %s begins no connection: %v", program, client, err)
				}
				want := all[table[hashOf(client, frontend.Port(), fixtures.ProtoUDP)%uint32(size)]].Addr()
				if to := got.Destination.Addr(); to != want {
					t.Fatalf("%s, %d backends: %s gets %s, the table says %s", program, backends, client, to, want)
				}
			}
		}
	}
}
