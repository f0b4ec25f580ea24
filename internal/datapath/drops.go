package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// DropReason says why a packet was dropped; its String is the metric label and what the command line prints.
type DropReason uint32

// dropReasons names the closed list of bpf/types.h, in its order, with a sentence for the reader.
var dropReasons = [bpfDropReasonDROP_MAX]struct{ name, meaning string }{
	bpfDropReasonDROP_NONE:                     {"none", "not a drop"},
	bpfDropReasonDROP_TRUNCATED:                {"truncated", "the packet is shorter than its IP header"},
	bpfDropReasonDROP_MALFORMED:                {"malformed", "the IP version, the header length or an IPv4-mapped address in IPv6 is impossible"},
	bpfDropReasonDROP_NOT_IP:                   {"not_ip", "a pod sent something that is neither IPv4, IPv6 nor ARP, or a tunnel brought something that is not IP"},
	bpfDropReasonDROP_SPOOFED_SOURCE:           {"spoofed_source", "a pod sent with a source address that is not its own"},
	bpfDropReasonDROP_INVALID_DESTINATION:      {"invalid_destination", "the host's stack routed a packet to a pod that does not own the destination; look for stale host routes"},
	bpfDropReasonDROP_NO_MASQUERADE_ADDRESS:    {"no_masquerade_address", "a packet to the world would have kept a pod's address; look whether the uplink has an address of that family"},
	bpfDropReasonDROP_UNKNOWN_TUNNEL_PEER:      {"unknown_tunnel_peer", "VXLAN came from an address that is no node's InternalIP, or with another network's number; look who sends to the port, and whether that node is known here"},
	bpfDropReasonDROP_NAT_PORTS_EXHAUSTED:      {"nat_ports_exhausted", "every port that translation may give towards that destination is taken; look who opens so many connections to it, or widen --nat-ports"},
	bpfDropReasonDROP_NAT_TABLE_FULL:           {"nat_table_full", "the table of translated connections is full; raise --nat-max"},
	bpfDropReasonDROP_NO_LOCAL_BACKEND:         {"no_local_backend", "the Service's traffic policy is Local and this node has no endpoint of it"},
	bpfDropReasonDROP_SOURCE_NOT_ALLOWED:       {"source_not_allowed", "the client is not in the Service's loadBalancerSourceRanges"},
	bpfDropReasonDROP_FRAGMENT_WITHOUT_FIRST:   {"fragment_without_first", "a later fragment came of which the first one, which has the ports, has not been seen; look whether fragments overtake each other"},
	bpfDropReasonDROP_NAT_UNSUPPORTED_PROTOCOL: {"nat_unsupported_protocol", "a pod sent to the world by a protocol without ports, which cannot share the node's address"},
	bpfDropReasonDROP_NO_ROUTE:                 {"no_route", "the packet was translated and the node has no route to where it should go; look at the node's own routes"},
	bpfDropReasonDROP_ICMP_RATELIMITED:         {"icmp_ratelimited", "the Service has no endpoints, or the packet was too big for the way, and it was of a kind that must not be answered or one too many"},
	bpfDropReasonDROP_INGRESS_POLICY:           {"ingress_policy", "NetworkPolicies select the receiving pod and none of them allows it; ask `beeline policy explain`"},
	bpfDropReasonDROP_EGRESS_POLICY:            {"egress_policy", "NetworkPolicies select the sending pod and none of them allows it; ask `beeline policy explain`"},
	bpfDropReasonDROP_INTERNAL_ERROR:           {"internal_error", "there was no place to judge the packet in, which cannot be; please report it"},
	bpfDropReasonDROP_INGRESS_POLICY_PENDING:   {"ingress_policy_pending", "what governs the receiving pod is not known yet or could not be put into force, so it gets nothing; look at `beeline policies` for problems"},
	bpfDropReasonDROP_EGRESS_POLICY_PENDING:    {"egress_policy_pending", "what governs the sending pod is not known yet or could not be put into force, so it sends nothing; look at `beeline policies` for problems"},
	bpfDropReasonDROP_BAD_FRAGMENT:             {"bad_fragment", "a first fragment does not hold the whole TCP, UDP, SCTP or ICMP header, a later one lies over it, or a second first one has other ports; somebody tries to get around policies, or the sender's path has a tiny MTU"},
	bpfDropReasonDROP_UNREADABLE:               {"unreadable", "NetworkPolicies select the pod, or the node itself would read the packet, and it has more IPv6 extension headers than are read, so nobody can tell what it is"},
	bpfDropReasonDROP_INVALID_SOURCE:           {"invalid_source", "an uplink brought what has a source of this node's pods or of a tunnelled node, or a tunnel what is not of the node that sent it; look who forges it, or whether the nodes have each other's InternalIPs and --tunnel"},
	bpfDropReasonDROP_TUNNEL_PORT:              {"tunnel_port", "a packet to the tunnels' UDP port would have got a node's address, or a tunnel's came to an address that is no InternalIP of this node; look who sends to --tunnel-port"},
	bpfDropReasonDROP_FORGED_ERROR:             {"forged_error", "a pod sent an ICMP error about a packet that was not addressed to the pod; somebody in it tries to cut others off, or to have the node send smaller packets"},
}

func (r DropReason) String() string {
	if int(r) < len(dropReasons) {
		return dropReasons[r].name
	}
	return fmt.Sprintf("reason_%d", uint32(r))
}

// Meaning is one sentence on what the reason says and where to look.
func (r DropReason) Meaning() string {
	if int(r) < len(dropReasons) {
		return dropReasons[r].meaning
	}
	return "the datapath is newer than this program"
}

// programNames names the enum of bpf/types.h, in its order.
var programNames = [bpfProgramPROGRAM_MAX]string{
	bpfProgramPROGRAM_FROM_POD:    bpfProgFromPod,
	bpfProgramPROGRAM_TO_POD:      bpfProgToPod,
	bpfProgramPROGRAM_FROM_WIRE:   bpfProgFromWire,
	bpfProgramPROGRAM_TO_WIRE:     bpfProgToWire,
	bpfProgramPROGRAM_FROM_TUNNEL: bpfProgFromTunnel,
	bpfProgramPROGRAM_TO_TUNNEL:   bpfProgToTunnel,
	bpfProgramPROGRAM_WIRE_XDP:    bpfProgWireXdp,
}

// Drop counts the packets that one program dropped for one reason.
type Drop struct {
	Program string
	Reason  DropReason
	Packets uint64
	// Bytes include the link-layer header.
	Bytes uint64
}

// Drops is the table of dropped packets. The datapath is its only writer.
type Drops struct{ m *ebpf.Map }

// newDrops gives the table its map.
func newDrops(m *bpfMaps) Drops { return Drops{m.Drops} }

// All gives a count for each program and reason, also those that are zero, summed over the CPUs.
func (t Drops) All() ([]Drop, error) {
	var all []Drop
	for p, program := range programNames {
		for r := range dropReasons {
			if r == int(bpfDropReasonDROP_NONE) {
				continue
			}
			var perCPU []bpfDropCount
			if err := t.m.Lookup(uint32(p)*uint32(bpfDropReasonDROP_MAX)+uint32(r), &perCPU); err != nil {
				return nil, fmt.Errorf("read drops of %s: %w", program, err)
			}
			d := Drop{Program: program, Reason: DropReason(r)}
			for _, c := range perCPU {
				d.Packets += c.Packets
				d.Bytes += c.Bytes
			}
			all = append(all, d)
		}
	}
	return all, nil
}
