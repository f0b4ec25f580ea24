/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sessions of packets that are translated. Policies know the pod by its own address, whatever others get to see, and the
 * backend by its own, whatever it was asked for as: the packet's source, and the destination that it gets.
 */
#pragma once

#include "lib/fwd/flow_cache.h"
#include "lib/nat/nat_state.h"
#include "lib/policy/policy_check.h"

/* Fills *q with a packet of connection *entry, as the pods at its ends know it. */
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
		pc->transport.kind = TRANSPORT_PORTS; /* those of the first one */
	pc->sender = *sender;
	pc->source_after_nat = entry->source;
	pc->source_port_after_nat = entry->source_port;
	pc->source_port = entry->source_port;
	pc->destination_port = entry->destination_port;
	pc->nat_reply = policy_context_is_reply(entry);
}

/*
 * Whether policies allow the connection that state->beginning is to begin: POLICY_ALLOWED or a reason to drop. Asked before it has an entry or a
 * port, so that who may send nothing takes neither. A session that is there already is evaluated behind translation, as all packets are.
 */
GLOBAL_FN int policy_check_new(struct __sk_buff *skb, const struct nat_state *state, __u32 program, __u32 enforce)
{
	struct policy_context *pc = policy_context_get();

	if (!policy_tracks() || !state || !(enforce & (ENFORCE_EGRESS | ENFORCE_INGRESS)))
		return POLICY_ALLOWED;
	if (!pc)
		return DROP_INTERNAL_ERROR; /* cannot be: the index has its element */
	policy_context_from_nat(pc, &state->transport, &state->new.to, &state->transport.tuple.source, program,
				enforce);
	pc->revision = policy_revision();
	pc->known = POLICY_KNOWN_PORT;
	if (policy_is_self(pc))
		return POLICY_ALLOWED;
	ct_key(&pc->key, &pc->transport.tuple);
	return ct_find(&pc->key) ? POLICY_ALLOWED : policy_verdict_new(skb, pc);
}

/* Asks about a packet of connection *entry, or about an ICMP error where x->error says what that quotes. */
static __noinline enum verdict policy_check_nat_slow(struct packet *p, const struct transport *t,
						     const struct nat_entry *entry, struct flow_cache_entry *fc,
						     __u32 enforce)
{
	struct policy_context *pc = policy_context_get();
	int reason;

	if (!pc)
		return drop(p, DROP_INTERNAL_ERROR); /* cannot be: the index has its element */
	policy_context_from_nat(pc, t, entry, &p->source, p->program, enforce);
	reason = policy_evaluate(p->skb, fc);
	return reason == POLICY_ALLOWED ? NEXT : drop(p, reason);
}

/*
 * Lets a packet of connection *entry pass, if policies allow it; `policed` (enum enforce_flag) says whose. `fc` is the decision
 * about its way, which keeps the permit; NULL: the stack has it, and each packet is asked about.
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
 * The same for an answer that the stack delivers, whose decision (flow_cache_slot_egress) is about it as it comes. That is how the pod
 * knows it, but for who answers and where the pod's port was changed: then each packet is asked about.
 */
STAGE policy_check_reply(struct packet *p, struct nat_state *state, const struct nat_entry *entry, __u32 enforce)
{
	struct flow_cache_entry *fc;

	if (!policy_tracks() || likely(!enforce))
		return NEXT;
	if (unlikely(state->transport.tuple.destination_port != entry->destination_port))
		return policy_check_nat_slow(p, &state->transport, entry, 0, enforce);
	fc = flow_cache_slot_egress(&p->source, &p->destination);
	if (!fc)
		return drop(p, DROP_INTERNAL_ERROR); /* cannot be: every index has its element */
	return likely(verdict_cache_hit(p, fc)) ? NEXT : policy_check_slow(p, fc, entry);
}

/* The same for an ICMP error about a packet of connection *entry, which is state->error. */
STAGE policy_check_error(struct packet *p, struct nat_state *state, const struct nat_entry *entry, __u32 enforce)
{
	if (!policy_tracks() || likely(!enforce))
		return NEXT;
	state->transport.tuple = state->error.tuple;
	return policy_check_nat_slow(p, &state->transport, entry, 0, enforce);
}
