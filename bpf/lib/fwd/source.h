/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether a packet can come from where it came from: what its source address says and who brought it have to agree. Asked
 * once for all packets between two addresses, before a decision about them is kept.
 */
#pragma once

#include "config.h"
#include "lib/net/packet.h"
#include "lib/policy/policy.h"
#include "lib/fwd/route.h"

/*
 * Whether the routes let packets with these addresses arrive at an uplink. Pods of this node send by their own devices. What a tunnelled
 * node's pods send to pods and to InternalIPs of this node comes by the tunnel. Between the nodes themselves there is none.
 */
static __always_inline bool source_has_path(const struct address *source, const struct address *destination)
{
	enum route_kind to;

	switch (route_kind_of(source)) {
	case ROUTE_LOCAL:
		return false;
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
 * Whether a packet of an uplink claims to be from this node itself, which sends to its pods by the stack. Linux drops such packets of IPv4 where
 * it forwards them, and none of IPv6: beside kube-proxy they might be for any Service. The node's addresses are known with policies
 * alone, for which it matters.
 */
GLOBAL_FN bool source_is_own(const struct address *source, const struct address *destination)
{
	if (!source || !destination)
		return true;
	return (config_kube_proxy || route_kind_of(destination) == ROUTE_LOCAL) &&
	       policy_identity(source, IDENTITY_BY_ALL) == IDENTITY_NODE;
}

/* Whether packets with these addresses may arrive at an uplink. */
GLOBAL_FN bool source_valid_from_wire(const struct address *source, const struct address *destination)
{
	return source && destination && source_has_path(source, destination) && !source_is_own(source, destination);
}

/*
 * Whether what an uplink brought may go to a pod that a Service or the stack has chosen since: a pod behind a tunnel is that only where its
 * tunnel vouches for it. A tunnelled node itself reaches Services of this one by the wire. The stack may have given the packet an
 * address of this node (kube-proxy).
 */
GLOBAL_FN bool source_valid_for_backend(const struct address *source, const struct address *backend)
{
	if (!source || !backend)
		return false;
	return source_has_path(source, backend) || (route_kind_of(source) == ROUTE_TUNNEL && route_of_host(source));
}

/*
 * Whether what the stack delivers to a pod can come from the device where the stack got it, which is 0 for what the node itself sends: a pod's
 * by the pod's alone. from_wire has asked about the destination that a packet came with; what the stack has translated since, as kube-proxy has
 * it do, was addressed to no pod. By other devices may come what another network carries, from which the cluster moves to this one.
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

/* Whether two addresses are of the same other node, by the next hop of their routes. */
GLOBAL_FN bool source_same_node(const struct address *one, const struct address *other)
{
	const struct route *a, *b;

	if (!one || !other)
		return false;
	a = route_of(one);
	b = route_of(other);
	return a && b && a->kind == b->kind && (a->kind == ROUTE_REMOTE || a->kind == ROUTE_TUNNEL) &&
	       address_equals(&a->next_hop, &b->next_hop);
}

/*
 * Whether who sends an ICMP error can have seen the packet that it quotes, whose answers have the tuple: by a tunnel, the node at its other end
 * what its pods got; by the wire, a router what went by it, and a node what its pods got by a tunnel (it sends as itself, which no tunnel carries).
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
 * Whether a source belongs to the node that a tunnel's packet came from: `peer` is the address that its way leads to, or another one
 * of the same node.
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

/*
 * Whether a packet that gets this node's address, or goes to this backend of a Service, might be taken for one of a tunnel: UDP to the
 * tunnels' port of an address that is no pod's, so that a node may have it. Nodes listen to each other by their addresses alone.
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
		return route_of_host(destination);
	default:
		return true;
	}
}
