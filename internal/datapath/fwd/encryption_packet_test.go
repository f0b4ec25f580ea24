package fwd_test

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// encrypt makes the routes of node A through a tunnel those of nodes whose packets have to be encrypted.
func encrypt(t *testing.T, r *harness.Harness) {
	t.Helper()
	routes := fixtures.RoutesOfNodeA(r.Netns.Devices["eth0"], r.Netns.Devices["tunnel"])
	for prefix, to := range routes {
		if to.Kind == fwd.RouteTunnel {
			routes[prefix] = fwd.Route{Kind: fwd.RouteEncrypted, Interface: to.Interface, MTU: to.MTU, NextHop: to.NextHop}
		}
	}
	if _, err := r.D.Routes.Sync(routes); err != nil {
		t.Fatal(err)
	}
}

// encryptedConfigs are those that differ in the programs of an uplink, each with and without plaintext allowed.
func encryptedConfigs() (all []config.Datapath) {
	for _, cfg := range []config.Datapath{{}, {EBPFRouting: true}, {EBPFRouting: true, Masquerade: true}, {EBPFRouting: true, Services: true}, {Masquerade: true, Services: true}} {
		cfg.Encryption = config.EncryptionWireGuard
		all = append(all, cfg)
		cfg.PlaintextAllowed = true
		all = append(all, cfg)
	}
	return all
}

// What the kernel stack would send in plaintext is dropped at the uplink, whatever route it has taken. Nodes reach each
// other in plaintext, and what is external stays external.
func TestToWireDropsPlaintext(t *testing.T) {
	for _, cfg := range encryptedConfigs() {
		var cases []harness.PacketCase
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			sends := func(what string, src, dst fixtures.Member, plaintext bool) {
				in := harness.StackSends(transport(fixtures.ToWire().Ip(src.Addr(family), dst.Addr(family))))
				if plaintext && !cfg.PlaintextAllowed {
					cases = append(cases, harness.Drops(name+" "+what, in, uint32(bpf.DropReasonDROP_UNENCRYPTED)))
				} else {
					cases = append(cases, harness.Passes(name+" "+what, in))
				}
			}
			sends("of a pod to another node's pod", fixtures.PodA, fixtures.PodT, true)
			sends("of a pod to another node's pod over IPv6", fixtures.PodA, fixtures.PodT6, true)
			sends("of a pod to another node", fixtures.PodA, fixtures.NodeT, true)
			sends("of the node to another node's pod", fixtures.NodeA, fixtures.PodT, true)
			sends("of the node to another node", fixtures.NodeA, fixtures.NodeT, false)
			sends("of the node to an external host", fixtures.NodeA, fixtures.External, false)
			sends("of an external host to another node's pod", fixtures.External, fixtures.PodT, true)
			sends("to a pod that is not encrypted", fixtures.PodA, fixtures.PodB, false)
		})
		// Pods with macvlan devices find each other's MACs in plaintext. After that nothing else is.
		pods := fixtures.ToWire().Ip(fixtures.PodA.Addr(6), fixtures.PodT.Addr(6))
		cases = append(cases, harness.Passes("an advertisement of a pod to another node's pod", harness.StackSends(pods.Ttl(255).Icmp(136, 0).Payload(ndTarget))))
		if !cfg.PlaintextAllowed {
			for what, p := range notNeighbours(pods) {
				cases = append(cases, harness.Drops(what+" of a pod to another node's pod", harness.StackSends(p), uint32(bpf.DropReasonDROP_UNENCRYPTED)))
			}
		}
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			r := harness.New(t, cfg)
			encrypt(t, r)
			r.Check(t, cases)
			r.Check(t, cases) // and once more: no packet has put a verdict into the flow cache
		})
	}
}

// ndTarget stands for the target and an option of neighbour discovery.
const ndTarget = "0123456789abcdef01234567"

// notNeighbours are packets that are similar to neighbour discovery.
func notNeighbours(p fixtures.Packet) map[string]fixtures.Packet {
	return map[string]fixtures.Packet{
		"an advertisement that was forwarded":  p.Ttl(254).Icmp(136, 0).Payload(ndTarget),
		"an advertisement with other data":     p.Ttl(255).Icmp(136, 0).Payload(ndTarget + "x"),
		"a redirect":                           p.Ttl(255).Icmp(137, 0).Payload(ndTarget),
		"an echo request with the hop limit":   p.Ttl(255).Icmp(128, 0).Payload(ndTarget),
		"UDP with the hop limit":               p.Ttl(255).Udp(136, 136).Payload("x"),
		"an advertisement behind a dst option": p.Ttl(255).Icmp(136, 0).Payload("x").Extend(fixtures.ProtoDstOptions),
	}
}

// Plaintext with the address of another node's pod reaches neither pods nor this node.
func TestFromWireDropsPlaintext(t *testing.T) {
	for _, cfg := range encryptedConfigs() {
		if cfg.PlaintextAllowed {
			continue
		}
		var cases []harness.PacketCase
		harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
			brings := func(src, dst fixtures.Member) harness.Run {
				return harness.WireBrings(transport(fixtures.FromWire().Ip(src.Addr(family), dst.Addr(family))))
			}
			for what, dst := range map[string]fixtures.Member{"a pod": fixtures.PodA, "this node": fixtures.NodeA} {
				cases = append(cases, harness.Drops(name+" of another node's pod to "+what, brings(fixtures.PodT, dst), uint32(bpf.DropReasonDROP_UNENCRYPTED)))
				// Linux takes UDP and ICMP from frames to a group, whatever their destination.
				p := transport(fixtures.FromWire().Ip(fixtures.PodT.Addr(family), dst.Addr(family)).Macs(fixtures.NodeB.Mac, fwd.MAC{255, 255, 255, 255, 255, 255}))
				cases = append(cases, harness.Drops(name+" of another node's pod in a broadcast to "+what, harness.WireBrings(p), uint32(bpf.DropReasonDROP_UNENCRYPTED)))
			}
			cases = append(cases,
				harness.Drops(name+" of another node to a pod", brings(fixtures.NodeT, fixtures.PodA), uint32(bpf.DropReasonDROP_UNENCRYPTED)),
				harness.Passes(name+" of another node to this node", brings(fixtures.NodeT, fixtures.NodeA)),
				harness.Passes(name+" of another node in a broadcast to this node", harness.WireBrings(
					transport(fixtures.FromWire().Ip(fixtures.NodeT.Addr(family), fixtures.NodeA.Addr(family)).Macs(fixtures.NodeB.Mac, fwd.MAC{255, 255, 255, 255, 255, 255})))),
			)
		})
		for what, dst := range map[string]fixtures.Member{"a pod": fixtures.PodA, "this node": fixtures.NodeA} {
			pods := fixtures.FromWire().Ip(fixtures.PodT.Addr(6), dst.Addr(6))
			cases = append(cases, harness.Passes("a solicitation of another node's pod to "+what, harness.WireBrings(pods.Ttl(255).Icmp(135, 0).Payload(ndTarget))))
			for like, p := range notNeighbours(pods) {
				cases = append(cases, harness.Drops(like+" of another node's pod to "+what, harness.WireBrings(p), uint32(bpf.DropReasonDROP_UNENCRYPTED)))
			}
		}
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			r := harness.New(t, cfg)
			encrypt(t, r)
			r.Check(t, cases)
			r.Check(t, cases) // and once more: no packet has put a verdict into the flow cache
		})
	}
}
