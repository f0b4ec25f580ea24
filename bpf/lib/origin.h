/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether a packet can come from where it came from: what its source address says and who brought it have to agree. Asked
 * once for all packets between two addresses, before a decision about them is kept.
 */
#pragma once

#include "../config.h"
#include "packet.h"
#include "route.h"

/*
 * Whether packets with these addresses may arrive at an uplink. Pods of this node send by their own devices; with DSR another node
 * may send back what one of them sent there (direct_arrived). What a tunnelled node's pods send to pods and to InternalIPs of this
 * node comes by the tunnel. Between the nodes themselves there is none.
 */
SEPARATE bool origin_may_be_wire(const struct address *source, const struct address *destination)
{
	enum route_kind to;

	if (!source || !destination)
		return false;
	switch (route_kind_of(source)) {
	case ROUTE_LOCAL:
		return config_dsr && route_kind_of(destination) == ROUTE_REMOTE;
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
 * Whether a source belongs to the node that a tunnel's packet came from: `peer` is the address that its way leads to, or another one
 * of the same node.
 */
SEPARATE bool origin_is_peer(const struct address *source, const struct address *peer)
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
SEPARATE bool origin_is_forged_tunnel(const struct address *destination, __be16 port, __u8 protocol)
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
