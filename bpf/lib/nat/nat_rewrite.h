/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The NAT stage. Packets of known connections are rewritten and forwarded; nat_new.h decides about others. With
 * NEXT the packet is unchanged and goes on untranslated.
 */
#pragma once

#include "lib/nat/nat_error.h"
#include "lib/nat/nat_forward.h"
#include "lib/nat/nat_new.h"

/*
 * Packets whose ports are not in their own transport header. With NEXT and unchanged kind, or TRANSPORT_FRAGMENT
 * with the ports of the first fragment, a lookup is possible now.
 */
static __noinline enum verdict nat_check_unusual(struct packet *p, struct nat_state *state, enum hook hook,
						 __u32 checks)
{
	struct transport *t = &state->transport;

	switch (t->kind) {
	case TRANSPORT_PORTS:
		return fragment_store(p, t) ? NEXT : drop(p, DROP_BAD_FRAGMENT);
	case TRANSPORT_FRAGMENT:
		if (fragment_lookup(p, t))
			return NEXT;
		t->kind = TRANSPORT_OTHER;
		return snat_required(hook, checks) ? drop(p, DROP_FRAGMENT_WITHOUT_FIRST) : NEXT;
	case TRANSPORT_ERROR:
		return nat_check_error(p, state, hook, checks);
	case TRANSPORT_BROKEN:
		return drop(p, DROP_BAD_FRAGMENT);
	default:
		t->kind = TRANSPORT_OTHER;
		return snat_required(hook, checks) ? drop(p, DROP_NAT_UNSUPPORTED_PROTOCOL) : NEXT;
	}
}

/*
 * A packet that exceeds the MTU of its route or has TTL 1. The kernel stack fragments it where it accepts the
 * source; else the sender gets an ICMP error.
 */
static __noinline enum verdict nat_undeliverable(struct packet *p, struct nat_state *state,
						 const struct nat_entry *entry)
{
	if (state->mtu != ICMP_REPLY_TTL_EXCEEDED && packet_may_be_fragmented(p) &&
	    !nat_changes_source(&state->transport.tuple, entry))
		return nat_rewrite_pass(p, state, entry);
	return icmp_reply_error(p, &state->transport, state->mtu);
}

/*
 * A packet without an established connection. With NEXT, state->has_entry says whether state->entry is its pending
 * one.
 */
static __noinline enum verdict nat_unknown(struct packet *p, struct nat_state *state, enum hook hook, __u32 checks,
					   __u64 now)
{
	int reason = nat_new_decide(p->skb, hook, checks, now);

	if (likely(reason == NAT_NEW_NEXT))
		return NEXT;
	return reason == NAT_NEW_REJECT ? icmp_reply_reject(p, &state->transport) : drop(p, reason);
}

/* A packet of a known connection. */
STAGE nat_known(struct packet *p, struct nat_state *state, const struct nat_entry *entry, enum hook hook, __u32 checks,
		__u64 now)
{
	enum verdict v;

	if (nat_is_elsewhere(entry, hook, checks)) {
		v = policy_check_nat(p, state, entry, 0, checks >> NAT_CHECK_ENFORCE_SHIFT);
		return v == NEXT ? PASS : v;
	}
	switch (hook) {
	case HOOK_TO_POD:
		if (entry->flags & (NAT_INITIATOR | NAT_UNCHANGED))
			return NEXT;
		v = policy_check_reply(p, state, entry, checks >> NAT_CHECK_ENFORCE_SHIFT);
		return v == NEXT ? nat_rewrite_pass(p, state, entry) : v;
	case HOOK_TO_WIRE:
		return nat_rewrite_pass(p, state, entry);
	case HOOK_FROM_WIRE:
		if (entry->flags & NAT_UNCHANGED)
			return NEXT;
		break;
	case HOOK_FROM_POD:
		break;
	}
	v = nat_forward(p, state, entry, checks, now);
	return likely(v != NEXT) ? v : nat_undeliverable(p, state, entry);
}

/* Translates a packet that may belong to a translated connection. `checks` is an enum nat_check and not 0. */
STAGE nat_translate(struct packet *p, enum hook hook, __u32 checks)
{
	struct nat_state *state = nat_state_get();
	const struct nat_entry *entry;
	enum verdict v;
	__u64 now;

	if (!state)
		return NEXT; /* internal error */
	transport_parse(p, &state->transport);
	if (unlikely(state->transport.kind != TRANSPORT_PORTS || state->transport.in_fragments)) {
		v = nat_check_unusual(p, state, hook, checks);
		if (v != NEXT || state->transport.kind == TRANSPORT_OTHER || state->transport.kind == TRANSPORT_ERROR)
			return v;
	}
	if (!config_services && checks & NAT_CHECK_NODE && !nat_port_in_range(state->transport.tuple.destination_port))
		return NEXT; /* for the node: without Services only masqueraded ports have replies */
	if (checks & NAT_CHECK_SERVICE && !nat_has_service(state))
		return NEXT;
	now = ktime_coarse();
	entry = nat_find(&state->transport, now);
	if (unlikely(!entry)) {
		v = nat_unknown(p, state, hook, checks, now);
		if (v != NEXT || !state->has_entry)
			return v;
		entry = &state->entry;
	}
	return nat_known(p, state, entry, hook, checks, now);
}
