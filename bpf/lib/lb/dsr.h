/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Direct server return (DSR) at layer 2: the node that receives an external packet forwards it to the backend's
 * node with only its MACs changed. That node recognises it by its destination, a NodePort of the forwarding node.
 */
#pragma once

#include "lib/fwd/route.h"
#include "lib/fwd/source.h"
#include "lib/nat/nat_state.h"

/* Whether the connection can be forwarded by DSR to a backend with a route of this kind. */
static __always_inline bool dsr_may(const struct nat_state *state, enum route_kind kind)
{
	const __u32 flags = SERVICE_DSR | SERVICE_AFFINITY;

	/* A packet is forwarded once only: nodes with different backends would loop. */
	if (!config_dsr || state->forwarded || kind != ROUTE_REMOTE || (state->choice.flags & flags) != SERVICE_DSR)
		return false;
	/*
	 * The client is behind a tunnel: a reply through the tunnel would have this node's address, which the
	 * backend's node may not send.
	 */
	if (route_is_tunnel(route_kind_of(&state->transport.tuple.source)))
		return false;
	/* The backend's node rejects packets from the wire with a source of its own. */
	return !source_same_node(&state->transport.tuple.source, &state->choice.backend.address);
}

/*
 * Whether another node of this link has forwarded the packet by DSR. Sets state->frontend to the same port of this
 * node, and state->forwarded.
 */
static __always_inline bool dsr_arrived(struct nat_state *state, __u32 ifindex)
{
	const struct uplink *uplink;

	if (!config_dsr || !transport_has_ports(state->transport.tuple.protocol) ||
	    route_copy(&state->frontend.address, &state->route) != ROUTE_REMOTE)
		return false;
	uplink = bpf_map_lookup_elem(&uplinks, &ifindex);
	if (!uplink)
		return false;
	state->frontend.address = address_is_ipv4(&state->frontend.address) ? uplink->ipv4 : uplink->ipv6;
	state->forwarded = service_of(&state->frontend) != 0;
	return state->forwarded;
}
