/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors that quote packets of translated connections. */
#pragma once

#include "lib/nat/icmp_nat.h"
#include "lib/nat/nat_forward.h"
#include "lib/nat/nat_new.h"

/* Translates and forwards an ICMP error about a packet of *entry. */
static __noinline enum verdict nat_icmp_error(struct packet *p, struct nat_state *state, const struct nat_entry *entry,
					      enum hook hook, __u32 checks)
{
	const struct address *source =
		address_equals(&p->source, &state->error.tuple.source) ? &entry->source : &p->source;
	bool changes_source = source != &p->source && !address_equals(source, &p->source);
	struct flow_cache_entry *fc;
	enum verdict v;

	state->entry = *entry; /* the entry may be evicted meanwhile */
	v = policy_check_error(p, state, &state->entry, checks >> NAT_CHECK_ENFORCE_SHIFT);
	if (v != NEXT)
		return v;
	if (hook == HOOK_TO_POD || hook == HOOK_TO_WIRE || (!changes_source && checks & NAT_CHECK_STACK)) {
		v = icmp_nat(p, &state->error, &state->entry);
		return v == NEXT ? PASS : v;
	}
	fc = nexthop_find(p, state, source, &state->entry.destination, ktime_coarse());
	if (!fc)
		return PASS; /* internal error */
	if (changes_source && fc->route.kind == ROUTE_CLUSTER)
		return PASS;
	if (changes_source && fc->route.kind == ROUTE_UNKNOWN)
		return drop(p, DROP_NO_ROUTE);
	if (p->ttl <= 1)
		return PASS;
	v = policy_check_error(p, state, &state->entry, fc->enforce);
	if (v != NEXT)
		return v;
	v = state->entry.flags & NAT_DSR ? NEXT : icmp_nat(p, &state->error, &state->entry);
	return v == NEXT ? nexthop_send_rare(p, state, fc) : v;
}

/* Whether the pod that reports a packet has received it: the packet was sent to its address. */
static __always_inline bool nat_error_is_receivers(const struct packet *p, const struct address *receiver)
{
	const struct endpoint *e = endpoint_of(receiver);

	return e && e->ifindex == p->skb->ifindex;
}

/* Whether another sender of the error can have seen the quoted packet. */
static __always_inline bool nat_error_is_plausible(const struct packet *p, const struct nat_state *state,
						   enum hook hook, __u32 checks)
{
	const struct tuple *reply_tuple = &state->error.tuple;

	switch (hook) {
	case HOOK_FROM_WIRE:
		return source_may_report_error(&p->source, reply_tuple, checks & NAT_CHECK_TUNNEL);
	case HOOK_TO_POD:
		return source_valid_from_device(&reply_tuple->source, &reply_tuple->destination,
						p->skb->ingress_ifindex);
	default:
		return true;
	}
}

/* Handles packets whose ports are not their own. NEXT if NAT has nothing to do with them. */
STAGE nat_check_error(struct packet *p, struct nat_state *state, enum hook hook, __u32 checks)
{
	const struct nat_entry *entry;
	enum verdict v;

	if (icmp_error_read(p, &state->error) && address_equals(&p->destination, &state->error.tuple.destination)) {
		entry = bpf_map_lookup_elem(&nat, &state->error.tuple);
		if (!entry)
			entry = bpf_map_lookup_elem(&nat_pending, &state->error.tuple);
		if (entry && nat_is_elsewhere(entry, hook, checks)) {
			v = policy_check_error(p, state, entry, checks >> NAT_CHECK_ENFORCE_SHIFT);
			return v == NEXT ? PASS : v;
		}
		if (entry && hook == HOOK_FROM_POD && !nat_error_is_receivers(p, &state->error.tuple.source))
			return drop(p, DROP_SPOOFED_SOURCE);
		if (entry && !nat_error_is_plausible(p, state, hook, checks))
			return drop(p, DROP_FORGED_ERROR);
		if (entry)
			return entry->flags & NAT_UNCHANGED ? NEXT : nat_icmp_error(p, state, entry, hook, checks);
	}
	return snat_required(hook, checks) ? drop(p, DROP_NAT_UNSUPPORTED_PROTOCOL) : NEXT;
}
