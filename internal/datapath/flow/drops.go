package flow

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// DropReason says why a packet was dropped; its String is the metric label and what the command line prints.
type DropReason uint32

// dropReasons has a name and a meaning for each value of enum drop_reason of bpf/types.h, in its order.
var dropReasons = [bpf.DropReasonDROP_MAX]struct{ name, meaning string }{
	bpf.DropReasonDROP_NONE:                     {"none", "not a drop"},
	bpf.DropReasonDROP_TRUNCATED:                {"truncated", "the packet is shorter than its IP header"},
	bpf.DropReasonDROP_MALFORMED:                {"malformed", "the IP version or header length is invalid, or an IPv6 packet has an IPv4-mapped address"},
	bpf.DropReasonDROP_NOT_IP:                   {"not_ip", "a pod sent a frame that is not IPv4, IPv6 or ARP, or a tunnel delivered one that is not IP"},
	bpf.DropReasonDROP_SPOOFED_SOURCE:           {"spoofed_source", "a pod sent with a source address that is not its own"},
	bpf.DropReasonDROP_INVALID_DESTINATION:      {"invalid_destination", "the host's stack routed a packet to a pod that does not have the destination address; check for stale host routes"},
	bpf.DropReasonDROP_NO_MASQUERADE_ADDRESS:    {"no_masquerade_address", "the uplink has no address to masquerade a pod's packet to an external destination; check that the uplink has an address of that family"},
	bpf.DropReasonDROP_UNKNOWN_TUNNEL_PEER:      {"unknown_tunnel_peer", "a VXLAN packet has a source that is not a node's InternalIP, or another network's VNI; check what sends to the port, and that the agent knows the node"},
	bpf.DropReasonDROP_NAT_PORTS_EXHAUSTED:      {"nat_ports_exhausted", "all SNAT ports towards the destination are in use; check which pods open so many connections to it, or widen --nat-ports"},
	bpf.DropReasonDROP_NAT_TABLE_FULL:           {"nat_table_full", "the NAT table is full; raise --nat-max"},
	bpf.DropReasonDROP_NO_LOCAL_BACKEND:         {"no_local_backend", "the Service's traffic policy is Local and this node has no endpoint of the Service"},
	bpf.DropReasonDROP_SOURCE_NOT_ALLOWED:       {"source_not_allowed", "the client is not in the Service's loadBalancerSourceRanges"},
	bpf.DropReasonDROP_FRAGMENT_WITHOUT_FIRST:   {"fragment_without_first", "a fragment arrived before the first fragment, which has the ports; check whether the network reorders fragments"},
	bpf.DropReasonDROP_NAT_UNSUPPORTED_PROTOCOL: {"nat_unsupported_protocol", "a pod sent to an external destination with a protocol that SNAT does not support, since it has no ports"},
	bpf.DropReasonDROP_NO_ROUTE:                 {"no_route", "the node has no route to the destination after translation; check the node's routes"},
	bpf.DropReasonDROP_ICMP_RATELIMITED:         {"icmp_ratelimited", "the Service has no endpoints or the packet exceeds the path MTU, and no ICMP error was sent: errors are rate-limited, and some packets must not cause one"},
	bpf.DropReasonDROP_INGRESS_POLICY:           {"ingress_policy", "NetworkPolicies isolate the receiving pod and none allows the packet; run `beeline policy explain`"},
	bpf.DropReasonDROP_EGRESS_POLICY:            {"egress_policy", "NetworkPolicies isolate the sending pod and none allows the packet; run `beeline policy explain`"},
	bpf.DropReasonDROP_INTERNAL_ERROR:           {"internal_error", "internal error: a scratch map lookup failed; please report it"},
	bpf.DropReasonDROP_INGRESS_POLICY_PENDING:   {"ingress_policy_pending", "the policies of the receiving pod are not known yet or could not be applied, so all ingress is denied; check `beeline policies` for problems"},
	bpf.DropReasonDROP_EGRESS_POLICY_PENDING:    {"egress_policy_pending", "the policies of the sending pod are not known yet or could not be applied, so all egress is denied; check `beeline policies` for problems"},
	bpf.DropReasonDROP_BAD_FRAGMENT:             {"bad_fragment", "a first fragment has no complete TCP, UDP, SCTP or ICMP header, a later fragment overlaps the header, or a second first fragment has other ports; this is an attempt to bypass policies, or the sender's path has a tiny MTU"},
	bpf.DropReasonDROP_UNREADABLE:               {"unreadable", "the packet has too many IPv6 extension headers to find its protocol, and NetworkPolicies select the pod or the packet is for the node itself"},
	bpf.DropReasonDROP_INVALID_SOURCE:           {"invalid_source", "a packet arrived at an uplink with a source of a local pod or of a tunnelled node, or through a tunnel with a source that is not the sending node's; check for forged packets, and that the nodes agree on InternalIPs and --tunnel"},
	bpf.DropReasonDROP_TUNNEL_PORT:              {"tunnel_port", "SNAT would have given a packet to the tunnels' UDP port a node address, or a tunnel packet arrived at an address that is not an InternalIP of this node; check what sends to --tunnel-port"},
	bpf.DropReasonDROP_FORGED_ERROR:             {"forged_error", "the sender of an ICMP error cannot have received the quoted packet: a pod to which it was not addressed, or a host on a path that it did not take; this is an attempt to break other connections or to lower their path MTU"},
	bpf.DropReasonDROP_UNENCRYPTED:              {"unencrypted", "plaintext from an address whose packets have to be encrypted: of a node without --encryption, or forged"},
	bpf.DropReasonDROP_BANDWIDTH:                {"bandwidth", "the pod has sent more than its bandwidth limit allows; TCP slows down because of it"},
	bpf.DropReasonDROP_ENCRYPTION_PENDING:       {"encryption_pending", "the packet has to be encrypted, and the device that encrypts or the other node's key is missing; `beeline status` says why"},
}

func (r DropReason) String() string {
	if int(r) < len(dropReasons) {
		return dropReasons[r].name
	}
	return fmt.Sprintf("reason_%d", uint32(r))
}

// Meaning describes the reason and what to check.
func (r DropReason) Meaning() string {
	if int(r) < len(dropReasons) {
		return dropReasons[r].meaning
	}
	return "the datapath is newer than this version of Beeline"
}

// Drop counts the packets that one program dropped for one reason.
type Drop struct {
	Program string
	Reason  DropReason
	Packets uint64
	// Bytes include the link-layer header.
	Bytes uint64
}

// Drops is the table of drop counters. The datapath is its only writer.
type Drops struct{ m *ebpf.Map }

func NewDrops(m *bpf.Maps) Drops { return Drops{m.Drops} }

// All returns a count for each program and reason, including zeros, summed over the CPUs.
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
