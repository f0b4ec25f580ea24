/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rewrites packets of known connections and forwards them. */
#pragma once

#include "lib/fwd/nexthop.h"
#include "lib/nat/icmp_reply.h"
#include "lib/nat/nat_state.h"
#include "lib/net/rewrite.h"
#include "lib/policy/policy_nat.h"

/* Whether routers may fragment the packet: IPv4 without DF (RFC 791, 3.1). */
static __always_inline bool packet_may_be_fragmented(const struct packet *p)
{
	return p->protocol == bpf_htons(ETH_P_IP) && !(p->ip4->frag_off & bpf_htons(0x4000));
}

/* Whether the kernel fragments the outer packet of a tunnel: VXLAN over IPv4, not over IPv6. */
static __always_inline bool nat_tunnel_fragments(const struct route *route)
{
	return route->kind == ROUTE_TUNNEL && address_is_ipv4(&route->next_hop);
}

/* Rewrites a packet that the kernel stack then forwards or delivers. */
STAGE nat_rewrite_pass(struct packet *p, const struct nat_state *state, const struct nat_entry *entry)
{
	return rewrite(p, &state->transport, entry) ? PASS : drop(p, rewrite_problem(&state->transport));
}

/* Whether NAT changes the source. The kernel stack drops packets from outside with a local source. */
static __always_inline bool nat_changes_source(const struct tuple *t, const struct nat_entry *entry)
{
	return !address_equals(&t->source, &entry->source) || t->source_port != entry->source_port;
}

/*
 * Rewrites a packet of *entry and redirects it. Leaves it to the kernel stack instead, rewritten where that
 * accepts the new source, else unchanged, and to_pod translates it. Returns NEXT if the sender must get an ICMP
 * error: state->mtu is the MTU of the route or ICMP_REPLY_TTL_EXCEEDED.
 */
static __noinline enum verdict nat_forward(struct packet *p, struct nat_state *state, const struct nat_entry *entry,
					   __u32 checks, __u64 now)
{
	const struct tuple *t = &state->transport.tuple;
	struct flow_cache_entry *fc;
	enum verdict v;

	if (checks & NAT_CHECK_STACK && !nat_changes_source(t, entry)) {
		v = policy_check_nat(p, state, entry, 0, checks >> NAT_CHECK_ENFORCE_SHIFT);
		if (v != NEXT)
			return v;
		return entry->flags & NAT_UNCHANGED ? PASS : nat_rewrite_pass(p, state, entry);
	}
	fc = nexthop_find(p, state, &entry->source, &entry->destination, now);
	if (!fc)
		return PASS; /* internal error */
	v = policy_check_nat(p, state, entry, fc, checks >> NAT_CHECK_ENFORCE_SHIFT | fc->enforce);
	if (v != NEXT)
		return v;
	if (config_dsr && entry->flags & NAT_DSR && fc->route.kind != ROUTE_REMOTE)
		return drop(p, DROP_NO_ROUTE); /* the route has changed: only the backend's node can translate it */
	if (unlikely(fc->route.kind == ROUTE_CLUSTER || fc->route.kind == ROUTE_UNKNOWN)) {
		if (!nat_changes_source(t, entry))
			return entry->flags & NAT_UNCHANGED ? PASS : nat_rewrite_pass(p, state, entry);
		return fc->route.kind == ROUTE_CLUSTER ? PASS : drop(p, DROP_NO_ROUTE);
	}
	if (unlikely(p->ttl <= 1)) {
		/*
		 * The kernel stack sends time exceeded for packets that it would forward. It would accept packets
		 * to an address of the node.
		 */
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
	return nexthop_send(p, state, fc);
}

/*
 * Whether packets of *entry are translated at another hook. At to_wire: packets that from_wire forwards by DSR,
 * all in the initiator's direction. At from_pod: packets for the kernel stack, which to_wire masquerades.
 */
static __always_inline bool nat_is_elsewhere(const struct nat_entry *entry, enum hook hook, __u32 checks)
{
	bool initiator = entry->flags & NAT_INITIATOR;

	if (hook == HOOK_TO_WIRE)
		return entry->flags & (NAT_UNCHANGED | NAT_DSR) || (checks & NAT_CHECK_REPLIES && initiator);
	return hook == HOOK_FROM_POD && checks & NAT_CHECK_STACK && initiator && !entry->service;
}
