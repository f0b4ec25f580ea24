package flow

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// DropReason says why a packet was dropped; its String is the metric label and what the command line prints.
type DropReason uint32

// dropReasons names the closed list of bpf/types.h, in its order, with a sentence for the reader.
var dropReasons = [bpf.DropReasonDROP_MAX]struct{ name, meaning string }{
	bpf.DropReasonDROP_NONE:                     {"none", "not a drop"},
	bpf.DropReasonDROP_TRUNCATED:                {"truncated", "the packet is shorter than its IP header"},
	bpf.DropReasonDROP_MALFORMED:                {"malformed", "the IP version, the header length or an IPv4-mapped address in IPv6 is impossible"},
	bpf.DropReasonDROP_NOT_IP:                   {"not_ip", "a pod sent something that is neither IPv4, IPv6 nor ARP, or a tunnel brought something that is not IP"},
	bpf.DropReasonDROP_SPOOFED_SOURCE:           {"spoofed_source", "a pod sent with a source address that is not its own"},
	bpf.DropReasonDROP_INVALID_DESTINATION:      {"invalid_destination", "the host's stack routed a packet to a pod that does not own the destination; look for stale host routes"},
	bpf.DropReasonDROP_NO_MASQUERADE_ADDRESS:    {"no_masquerade_address", "a packet to the world would have kept a pod's address; look whether the uplink has an address of that family"},
	bpf.DropReasonDROP_UNKNOWN_TUNNEL_PEER:      {"unknown_tunnel_peer", "VXLAN came from an address that is no node's InternalIP, or with another network's number; look who sends to the port, and whether that node is known here"},
	bpf.DropReasonDROP_NAT_PORTS_EXHAUSTED:      {"nat_ports_exhausted", "every port that translation may give towards that destination is taken; look who opens so many connections to it, or widen --nat-ports"},
	bpf.DropReasonDROP_NAT_TABLE_FULL:           {"nat_table_full", "the table of translated connections is full; raise --nat-max"},
	bpf.DropReasonDROP_NO_LOCAL_BACKEND:         {"no_local_backend", "the Service's traffic policy is Local and this node has no endpoint of it"},
	bpf.DropReasonDROP_SOURCE_NOT_ALLOWED:       {"source_not_allowed", "the client is not in the Service's loadBalancerSourceRanges"},
	bpf.DropReasonDROP_FRAGMENT_WITHOUT_FIRST:   {"fragment_without_first", "a later fragment came of which the first one, which has the ports, has not been seen; look whether fragments overtake each other"},
	bpf.DropReasonDROP_NAT_UNSUPPORTED_PROTOCOL: {"nat_unsupported_protocol", "a pod sent to the world by a protocol without ports, which cannot share the node's address"},
	bpf.DropReasonDROP_NO_ROUTE:                 {"no_route", "the packet was translated and the node has no route to where it should go; look at the node's own routes"},
	bpf.DropReasonDROP_ICMP_RATELIMITED:         {"icmp_ratelimited", "the Service has no endpoints, or the packet was too big for the way, and it was of a kind that must not be answered or one too many"},
	bpf.DropReasonDROP_INGRESS_POLICY:           {"ingress_policy", "NetworkPolicies select the receiving pod and none of them allows it; ask `beeline policy explain`"},
	bpf.DropReasonDROP_EGRESS_POLICY:            {"egress_policy", "NetworkPolicies select the sending pod and none of them allows it; ask `beeline policy explain`"},
	bpf.DropReasonDROP_INTERNAL_ERROR:           {"internal_error", "there was no place to judge the packet in, which cannot be; please report it"},
	bpf.DropReasonDROP_INGRESS_POLICY_PENDING:   {"ingress_policy_pending", "what governs the receiving pod is not known yet or could not be put into force, so it gets nothing; look at `beeline policies` for problems"},
	bpf.DropReasonDROP_EGRESS_POLICY_PENDING:    {"egress_policy_pending", "what governs the sending pod is not known yet or could not be put into force, so it sends nothing; look at `beeline policies` for problems"},
	bpf.DropReasonDROP_BAD_FRAGMENT:             {"bad_fragment", "a first fragment does not hold the whole TCP, UDP, SCTP or ICMP header, a later one lies over it, or a second first one has other ports; somebody tries to get around policies, or the sender's path has a tiny MTU"},
	bpf.DropReasonDROP_UNREADABLE:               {"unreadable", "NetworkPolicies select the pod, or the node itself would read the packet, and it has more IPv6 extension headers than are read, so nobody can tell what it is"},
	bpf.DropReasonDROP_INVALID_SOURCE:           {"invalid_source", "an uplink brought what has a source of this node's pods or of a tunnelled node, or a tunnel what is not of the node that sent it; look who forges it, or whether the nodes have each other's InternalIPs and --tunnel"},
	bpf.DropReasonDROP_TUNNEL_PORT:              {"tunnel_port", "a packet to the tunnels' UDP port would have got a node's address, or a tunnel's came to an address that is no InternalIP of this node; look who sends to --tunnel-port"},
	bpf.DropReasonDROP_FORGED_ERROR:             {"forged_error", "a pod sent an ICMP error about a packet that was not addressed to the pod; somebody in it tries to cut others off, or to have the node send smaller packets"},
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

// NewDrops gives the table its map.
func NewDrops(m *bpf.Maps) Drops { return Drops{m.Drops} }

// All gives a count for each program and reason, also those that are zero, summed over the CPUs.
func (t Drops) All() ([]Drop, error) {
	var all []Drop
	for p, program := range bpf.ProgramNames {
		for r := range dropReasons {
			if r == int(bpf.DropReasonDROP_NONE) {
				continue
			}
			var perCPU []bpf.DropCount
			if err := t.m.Lookup(uint32(p)*uint32(bpf.DropReasonDROP_MAX)+uint32(r), &perCPU); err != nil {
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
