/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Direct answers (DSR), at layer 2: a packet of the world goes on to its backend's node as it came, with other MACs, and
 * that node recognises what it is for by its destination, a NodePort of the node that forwarded it.
 */
#pragma once

#include "lib/fwd/source.h"
#include "lib/fwd/route.h"
#include "lib/nat/nat_state.h"

/* Whether a connection whose backend is behind a route of this kind is left to the backend's node as a whole. */
static __always_inline bool dsr_may(const struct nat_state *state, enum route_kind kind)
{
	const __u32 flags = SERVICE_DSR | SERVICE_AFFINITY;

	/* What was forwarded once is not forwarded so again: nodes that know different backends would do it for ever. */
	if (!config_dsr || state->forwarded || kind != ROUTE_REMOTE || (state->choice.flags & flags) != SERVICE_DSR)
		return false;
	/* Answers into a tunnel would come from the backend's node and bear this one's address, which is not that node's to send. */
	if (route_kind_of(&state->transport.tuple.source) == ROUTE_TUNNEL)
		return false;
	/* No node takes from the wire what has a source of its own: anybody on the link could send that. */
	return !source_same_node(&state->transport.tuple.source, &state->choice.backend.address);
}

/*
 * Whether a packet that arrived was forwarded by another node of this link because of its Service. state->frontend, which
 * is the packet's destination, is then the same port of this node, and state->forwarded is set.
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
