/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Source validation: the source address must match where the packet came from. Checked once for each flow cache
 * entry.
 */
#pragma once

#include "config.h"
#include "lib/fwd/route.h"
#include "lib/net/packet.h"
#include "lib/policy/policy.h"

/*
 * Whether packets with these addresses can arrive at an uplink. Local pods send by their own devices. Pods of a
 * node behind a tunnel, of VXLAN or an encrypted one, reach pods and InternalIPs of this node by the tunnel; nodes reach each
 * other by the wire.
 */
static __always_inline bool source_has_path(const struct address *source, const struct address *destination)
{
	enum route_kind to;

	switch (route_kind_of(source)) {
	case ROUTE_LOCAL:
		return false;
	case ROUTE_ENCRYPTED:
		/* Not strict: nodes turn encryption on one after the other. Else as behind any tunnel. */
		if (!config_strict_encryption)
			return true;
		/* fallthrough */
	case ROUTE_TUNNEL:
		to = route_kind_of(destination);
		if (to == ROUTE_LOCAL)
			return false;
		return to != ROUTE_CLUSTER || !route_of_host(destination) || route_of_host(source);
	default:
		return true;
	}
}

/*
 * Whether a packet from an uplink claims a source address of this node. Linux drops such IPv4 packets when it
 * forwards them, but not IPv6. With kube-proxy the packet may be for any Service. The node addresses are known,
 * and matter, only with policies.
 */
GLOBAL_FN bool source_is_own(const struct address *source, const struct address *destination)
{
	if (!source || !destination)
		return true;
	return (config_kube_proxy || route_kind_of(destination) == ROUTE_LOCAL) &&
	       policy_identity(source, IDENTITY_BY_ALL) == IDENTITY_NODE;
}

GLOBAL_FN bool source_valid_from_wire(const struct address *source, const struct address *destination)
{
	return source && destination && source_has_path(source, destination) && !source_is_own(source, destination);
}

/*
 * Whether a packet from an uplink may go to the pod that a Service or the kernel stack has chosen. A pod behind a
 * tunnel is valid only if the packet came by the tunnel; its node itself reaches Services by the wire. kube-proxy
 * may have masqueraded the packet to an address of this node.
 */
GLOBAL_FN bool source_valid_for_backend(const struct address *source, const struct address *backend)
{
	if (!source || !backend)
		return false;
	return source_has_path(source, backend) || (route_is_tunnel(route_kind_of(source)) && route_of_host(source));
}

/*
 * Whether a packet that the kernel stack delivers can come from `device`; 0 is the node itself. A source of a
 * local pod must come from that pod's device. from_wire has validated the original destination, but kube-proxy's
 * DNAT may have chosen the pod since. Other devices may carry another network during a migration.
 */
GLOBAL_FN bool source_valid_from_device(const struct address *source, const struct address *receiver, __u32 device)
{
	const struct endpoint *sender;
	struct address from;

	if (!source || !receiver)
		return false;
	if (!device)
		return true;
	from = *source;
	sender = bpf_map_lookup_elem(&endpoints, &from);
	if (sender)
		return sender->ifindex == device;
	return !bpf_map_lookup_elem(&uplinks, &device) || source_valid_for_backend(source, receiver);
}

/* Whether two addresses belong to the same remote node: their routes have the same next hop. */
GLOBAL_FN bool source_same_node(const struct address *one, const struct address *other)
{
	const struct route *a, *b;

	if (!one || !other)
		return false;
	a = route_of(one);
	b = route_of(other);
	return a && b && a->kind == b->kind && (a->kind == ROUTE_REMOTE || route_is_tunnel(a->kind)) &&
	       address_equals(&a->next_hop, &b->next_hop);
}

/*
 * Whether the sender of an ICMP error can have seen the quoted packet, whose reply tuple is given. By a tunnel:
 * the peer node, for packets to its pods. By the wire: a router for any packet on the wire, and a node for packets
 * that its pods got by a tunnel.
 */
GLOBAL_FN bool source_may_report_error(const struct address *sender, const struct tuple *reply_tuple, __u32 tunnel)
{
	bool beside;

	if (!sender || !reply_tuple)
		return false;
	beside = source_same_node(sender, &reply_tuple->source);
	if (tunnel)
		return beside;
	return source_valid_from_wire(&reply_tuple->source, &reply_tuple->destination) ||
	       (beside && route_of_host(sender));
}

/*
 * Whether a source belongs to the node at the other end of a tunnel. `peer` is the next hop of its route, or
 * another address of that node.
 */
GLOBAL_FN bool source_is_tunnel_peer(const struct address *source, const struct address *peer)
{
	const struct route *r, *other;

	if (!source || !peer)
		return false;
	r = route_of(source);
	if (!r || (r->kind != ROUTE_TUNNEL && r->kind != ROUTE_REMOTE))
		return false;
	if (address_equals(&r->next_hop, peer))
		return true;
	other = route_of_host(peer);
	return other && other->kind == ROUTE_TUNNEL && address_equals(&other->next_hop, &r->next_hop);
}

/* Whether a source is reached by encrypted packets to the node with this end of IPsec. */
GLOBAL_FN bool source_is_encrypted_by(const struct address *source, const struct address *peer)
{
	const struct route *r;

	if (!source || !peer)
		return false;
	r = route_of(source);
	return r && r->kind == ROUTE_ENCRYPTED && address_equals(&r->next_hop, peer);
}

/*
 * Whether a packet that gets a source of this node, or goes to this backend, could pass for a tunnel packet: UDP
 * to the tunnel port of an address that is not a pod's. Nodes identify tunnel peers by address only.
 */
GLOBAL_FN bool source_forges_tunnel(const struct address *destination, __be16 port, __u8 protocol)
{
	if (!destination || protocol != PROTOCOL_UDP || !config_tunnel_port ||
	    likely(port != bpf_htons(config_tunnel_port)))
		return false;
	switch (route_kind_of(destination)) {
	case ROUTE_LOCAL:
		return false;
	case ROUTE_REMOTE:
	case ROUTE_TUNNEL:
	case ROUTE_ENCRYPTED:
		return route_of_host(destination);
	default:
		return true;
	}
}
