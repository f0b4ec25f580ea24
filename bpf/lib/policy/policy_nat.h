/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Policies for translated packets: they see the pod's address before SNAT and the backend's address after DNAT. */
#pragma once

#include "lib/fwd/flow_cache.h"
#include "lib/nat/nat_state.h"
#include "lib/policy/policy_check.h"

/* Fills the context of a packet of *entry. */
static __always_inline void policy_context_from_nat(struct policy_context *pc, const struct transport *t,
						    const struct nat_entry *entry, const struct address *sender,
						    __u32 program, __u32 enforce)
{
	pc->program = program;
	pc->enforce = enforce;
	pc->transport = *t;
	policy_context_clear_flags(&pc->transport);
	pc->destination_before_nat = t->tuple.destination;
	pc->destination_port_before_nat = t->tuple.destination_port;
	pc->transport.tuple.destination = entry->destination;
	pc->transport.tuple.destination_port = entry->destination_port;
	if (t->kind == TRANSPORT_FRAGMENT)
		pc->transport.kind = TRANSPORT_PORTS; /* with the ports of the first fragment */
	pc->sender = *sender;
	pc->source_after_nat = entry->source;
	pc->source_port_after_nat = entry->source_port;
	pc->source_port = entry->source_port;
	pc->destination_port = entry->destination_port;
	pc->nat_reply = policy_context_is_reply(entry);
}

/*
 * Whether policies allow the connection in state->fresh: POLICY_ALLOWED or a drop reason. Evaluated before it gets
 * an entry and a port, so a denied sender takes neither. Known connections are evaluated with their packets.
 */
GLOBAL_FN int policy_check_new(struct __sk_buff *skb, const struct nat_state *state, __u32 program, __u32 enforce)
{
	struct policy_context *pc = policy_context_get();

	if (!policy_tracks() || !state || !(enforce & (ENFORCE_EGRESS | ENFORCE_INGRESS)))
		return POLICY_ALLOWED;
	if (!pc)
		return DROP_INTERNAL_ERROR;
	policy_context_from_nat(pc, &state->transport, &state->fresh.to, &state->transport.tuple.source, program,
				enforce);
	pc->revision = policy_revision();
	pc->known = POLICY_KNOWN_PORT;
	if (policy_is_self(pc))
		return POLICY_ALLOWED;
	ct_key(&pc->key, &pc->transport.tuple);
	return ct_find(&pc->key) ? POLICY_ALLOWED : policy_verdict_new(skb, pc);
}

/* Evaluates a packet of *entry, or an ICMP error with its quotation in state->error. */
static __noinline enum verdict policy_check_nat_slow(struct packet *p, const struct transport *t,
						     const struct nat_entry *entry, struct flow_cache_entry *fc,
						     __u32 enforce)
{
	struct policy_context *pc = policy_context_get();
	int reason;

	if (!pc)
		return drop(p, DROP_INTERNAL_ERROR);
	policy_context_from_nat(pc, t, entry, &p->source, p->program, enforce);
	reason = policy_evaluate(p->skb, fc);
	return reason == POLICY_ALLOWED ? NEXT : drop(p, reason);
}

/*
 * Applies policies to a packet of *entry. The verdict is cached in `fc`; NULL: the kernel stack forwards the
 * packet, and every packet is evaluated.
 */
STAGE policy_check_nat(struct packet *p, struct nat_state *state, const struct nat_entry *entry,
		       struct flow_cache_entry *fc, __u32 enforce)
{
	const struct tuple *t = &state->transport.tuple;

	if (!policy_tracks() || likely(!enforce))
		return NEXT;
	if (fc && likely(verdict_cache_covers(&fc->verdict, entry->source_port, entry->destination_port, t->protocol,
					      state->transport.flags))) {
		verdict_cache_count(&fc->verdict, p->skb->len);
		return NEXT;
	}
	return policy_check_nat_slow(p, &state->transport, entry, fc, enforce);
}

/*
 * Likewise for a reply that the kernel stack delivers, with the flow cache entry of its original addresses. These
 * are what the pod sees, except for the sender; if the pod's port is translated, every packet is evaluated.
 */
STAGE policy_check_reply(struct packet *p, struct nat_state *state, const struct nat_entry *entry, __u32 enforce)
{
	struct flow_cache_entry *fc;

	if (!policy_tracks() || likely(!enforce))
		return NEXT;
	if (unlikely(state->transport.tuple.destination_port != entry->destination_port))
		return policy_check_nat_slow(p, &state->transport, entry, 0, enforce);
	fc = flow_cache_slot(&p->source, &p->destination, CACHED_EGRESS);
	if (!fc)
		return drop(p, DROP_INTERNAL_ERROR);
	return likely(verdict_cache_hit(p, fc)) ? NEXT : policy_check_slow(p, fc, entry);
}

/* Likewise for an ICMP error about a packet of *entry. */
STAGE policy_check_error(struct packet *p, struct nat_state *state, const struct nat_entry *entry, __u32 enforce)
{
	if (!policy_tracks() || likely(!enforce))
		return NEXT;
	state->transport.tuple = state->error.tuple;
	return policy_check_nat_slow(p, &state->transport, entry, 0, enforce);
}
