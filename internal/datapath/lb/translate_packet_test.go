package lb_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// putNAT puts one direction of a connection into `nat_pending`.
func putNAT(r *harness.Harness, tb testing.TB, key bpf.Tuple, value bpf.NatEntry) {
	tb.Helper()
	now, err := table.Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	value.Seen = uint64(now / time.Nanosecond)
	if err := r.D.Objects.Maps.NatPending.Put(key, value); err != nil {
		tb.Fatal(err)
	}
}

// What from_wire forwards to its backend's node as it came leaves by to_wire, where that is attached, as it came.
func TestToWireLeavesDirect(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{DSR: true})
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f := fixtures.FlowOf(family)
		putNAT(r, t, bpf.TupleOf(f.Client, f.Frontend, protocol),
			fixtures.ConnectionOf(f.Client, f.Backend, bpf.NatFlagNAT_INITIATOR|bpf.NatFlagNAT_DSR))
		r.CheckOne(t, harness.Passes(name, harness.StackSends(transport(fixtures.ToWire(), f.Client, f.Frontend))))
	})
}

// The packets of a pod that goes through the stack do so from the first to the last: the stack has limits and rules for them.
func TestThroughStackToExternal(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	r.ThroughStack(t, fixtures.PodA, true)
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		from, to := netip.AddrPortFrom(fixtures.PodA.Addr(family), 45001), netip.AddrPortFrom(fixtures.External.Addr(family), 443)
		masqueraded := fixtures.ConnectionOf(netip.AddrPortFrom(fixtures.NodeA.Addr(family), 45001), to, bpf.NatFlagNAT_INITIATOR)
		masqueraded.Service = 0
		putNAT(r, t, bpf.TupleOf(from, to, protocol), masqueraded)
		r.CheckOne(t, harness.Passes(name, harness.PodSends(transport(fixtures.FromPod(), from, to))))
	})
}

// Half of another connection does not make one established: its answers would go to somebody else.
func TestHalvesOfDifferentConnections(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f := fixtures.FlowOf(family)
		putNAT(r, t, bpf.TupleOf(f.Client, f.Frontend, protocol), fixtures.ConnectionOf(f.Node, f.Backend, bpf.NatFlagNAT_INITIATOR))
		other := netip.AddrPortFrom(f.Client.Addr().Next(), f.Client.Port())
		putNAT(r, t, bpf.TupleOf(f.Backend, f.Node, protocol), fixtures.ConnectionOf(f.Frontend, other, 0))
		r.Netns.Do(func() {
			_, _ = r.Run(harness.WireBrings(transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend)))
		})
		if n, err := table.Count(r.D.Objects.Maps.Nat); err != nil || n != 0 {
			t.Errorf("%s: %d entries count as established: %v", name, n, err)
		}
	})
}

// Unreplied packets fill only nat_pending.
func TestUnrepliedIsNotEstablished(t *testing.T) {
	for _, dsr := range []bool{false, true} {
		r := harness.NewServices(t, config.Datapath{DSR: dsr})
		flags := bpf.ServiceFlag(0)
		if dsr {
			flags = bpf.ServiceFlagSERVICE_DSR
		}
		fixtures.EachTransport(func(name string, family int, _ uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
			f := fixtures.FlowOf(family)
			r.Serve(t, f.Frontend, flags, f.Backend)
			r.Netns.Do(func() {
				for range 300 {
					_, _ = r.Run(harness.WireBrings(transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend)))
				}
			})
			n, err := table.Count(r.D.Objects.Maps.Nat)
			if err != nil || n != 0 {
				t.Errorf("%s, dsr=%t: %d entries count as established: %v", name, dsr, n, err)
			}
			if n, err := table.Count(r.D.Objects.Maps.NatPending); err != nil || n == 0 {
				t.Errorf("%s, dsr=%t: nothing is remembered: %v", name, dsr, err)
			}
		})
	}
}

// Pods reach no Service of the node's own loopback addresses by packets that they make themselves.
func TestLoopbackIsNoServiceForPods(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, loopback := range []string{"127.0.0.1", "::1"} {
		frontend := netip.AddrPortFrom(fixtures.Addr(loopback), 30080)
		r.Serve(t, frontend, 0, netip.AddrPortFrom(fixtures.PodB.V4, 80))
		from := fixtures.PodA.V4
		if frontend.Addr().Is6() {
			from = fixtures.PodA.V6
		}
		r.CheckOne(t, harness.Passes(loopback, harness.PodSends(fixtures.FromPod().Ip(from, frontend.Addr()).Udp(45002, 30080).Payload("hello"))))
	}
}
