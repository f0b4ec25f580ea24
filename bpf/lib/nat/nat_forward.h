/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rewrites a packet of a known connection and forwards it. */
#pragma once

#include "lib/fwd/nexthop.h"
#include "lib/nat/icmp_reply.h"
#include "lib/nat/nat_state.h"
#include "lib/net/rewrite.h"
#include "lib/policy/policy_nat.h"

/* Whether routers may cut the packet into pieces: IPv4 without DF (RFC 791, 3.1). */
static __always_inline bool packet_may_be_fragmented(const struct packet *p)
{
	return p->protocol == bpf_htons(ETH_P_IP) && !(p->ip4->frag_off & bpf_htons(0x4000));
}

/* Whether what is around a packet is cut where the whole does not fit: VXLAN over IPv4. Over IPv6 the kernel cuts nothing of it. */
static __always_inline bool nat_tunnel_fragments(const struct route *route)
{
	return route->kind == ROUTE_TUNNEL && address_is_ipv4(&route->next_hop);
}

/* Does to a packet of connection *entry what is done where the stack goes on with it. */
STAGE nat_rewrite_pass(struct packet *p, const struct nat_state *state, const struct nat_entry *entry)
{
	return rewrite(p, &state->transport, entry) ? PASS : drop(p, rewrite_problem(&state->transport));
}

/* Whether the packet gets another source, from which the stack would take no packet that comes from outside of it. */
static __always_inline bool nat_changes_source(const struct tuple *t, const struct nat_entry *entry)
{
	return !address_equals(&t->source, &entry->source) || t->source_port != entry->source_port;
}

/*
 * Translates a packet of connection *entry and sends it straight, or leaves it to the stack: translated if the stack takes
 * it that way, else as it is, and to_pod translates it once it is through. NEXT only if its sender is to be told that it goes
 * no further: state->mtu says what would fit its way, or ICMP_REPLY_TTL_EXCEEDED.
 */
static __noinline enum verdict nat_forward(struct packet *p, struct nat_state *state, const struct nat_entry *entry,
					   __u32 checks, __u64 now)
{
	bool changes_source = nat_changes_source(&state->transport.tuple, entry), fresh;
	struct flow_cache_entry *fc;
	enum verdict v;

	if (!changes_source && checks & NAT_CHECK_STACK) {
		v = policy_check_nat(p, state, entry, 0, checks >> NAT_CHECK_ENFORCE_SHIFT);
		if (v != NEXT)
			return v;
		return entry->flags & NAT_UNCHANGED ? PASS : nat_rewrite_pass(p, state, entry);
	}
	fc = nexthop_find(p, state, &entry->source, &entry->destination, now, &fresh);
	if (!fc)
		return PASS; /* cannot be: every index has its element */
	v = policy_check_nat(p, state, entry, fc, checks >> NAT_CHECK_ENFORCE_SHIFT | fc->enforce);
	if (v != NEXT)
		return v;
	if (config_dsr && entry->flags & NAT_DSR && fc->route.kind != ROUTE_REMOTE)
		return drop(p, DROP_NO_ROUTE); /* the way there has changed: nobody would know what to do with it */
	if (unlikely(fc->route.kind == ROUTE_CLUSTER || fc->route.kind == ROUTE_UNKNOWN)) {
		if (!changes_source)
			return entry->flags & NAT_UNCHANGED ? PASS : nat_rewrite_pass(p, state, entry);
		return fc->route.kind == ROUTE_CLUSTER ? PASS : drop(p, DROP_NO_ROUTE);
	}
	if (unlikely(p->ttl <= 1)) {
		/* The stack answers what it would have forwarded; it would take for its own what is for an address of the node. */
		if (p->program == PROGRAM_FROM_POD && !entry->service)
			return PASS;
		state->mtu = ICMP_REPLY_TTL_EXCEEDED;
		return NEXT;
	}
	if (fc->route.kind != ROUTE_LOCAL && unlikely(!route_fits(p, &fc->route)) &&
	    !(nat_tunnel_fragments(&fc->route) && packet_may_be_fragmented(p))) {
		state->mtu = fc->route.mtu;
		return NEXT;
	}
	if (likely(!(entry->flags & (NAT_UNCHANGED | NAT_DSR))) && !rewrite(p, &state->transport, entry))
		return drop(p, rewrite_problem(&state->transport));
	return nexthop_send(p, fc, fresh);
}

/*
 * Whether packets of connection *entry go on here as they are. At to_wire, those that from_wire forwards to their backend's
 * node (DSR), which are of the opener's direction: the stack only answers. At from_pod, those that the stack is to have,
 * behind which to_wire masquerades.
 */
static __always_inline bool nat_is_elsewhere(const struct nat_entry *entry, enum hook hook, __u32 checks)
{
	bool initiator = entry->flags & NAT_INITIATOR;

	if (hook == HOOK_TO_WIRE)
		return entry->flags & (NAT_UNCHANGED | NAT_DSR) || (checks & NAT_CHECK_REPLIES && initiator);
	return hook == HOOK_FROM_POD && checks & NAT_CHECK_STACK && initiator && !entry->service;
}
