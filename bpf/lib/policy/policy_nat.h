/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sessions of packets that are translated. Policies know the pod by its own address, whatever others get to see, and the
 * backend by its own, whatever it was asked for as: the packet's source, and the destination that it gets.
 */
#pragma once

#include "lib/fwd/flow_cache.h"
#include "lib/nat/nat_state.h"
#include "lib/policy/policy_check.h"

/* Fills *q with a packet of connection *c, as the pods at its ends know it. */
static __always_inline void policy_context_from_nat(struct policy_context *q, const struct transport *t,
						    const struct nat_entry *c, const struct address *sender,
						    __u32 program, __u32 enforce)
{
	q->program = program;
	q->enforce = enforce;
	q->transport = *t;
	policy_context_clear_flags(&q->transport);
	q->destination_before_nat = t->tuple.destination;
	q->destination_port_before_nat = t->tuple.destination_port;
	q->transport.tuple.destination = c->destination;
	q->transport.tuple.destination_port = c->destination_port;
	if (t->kind == TRANSPORT_FRAGMENT)
		q->transport.kind = TRANSPORT_PORTS; /* those of the first one */
	q->sender = *sender;
	q->source_after_nat = c->source;
	q->source_port_after_nat = c->source_port;
	q->source_port = c->source_port;
	q->destination_port = c->destination_port;
	q->nat_reply = policy_context_is_reply(c);
}

/*
 * Whether policies allow the connection that x->beginning is to begin: POLICY_ALLOWED or a reason to drop. Asked before it has an entry or a
 * port, so that who may send nothing takes neither. A session that is there already is evaluated behind translation, as all packets are.
 */
GLOBAL_FN int policy_check_new(struct __sk_buff *skb, const struct nat_state *x, __u32 program, __u32 enforce)
{
	struct policy_context *q = policy_context_get();

	if (!policy_tracks() || !x || !(enforce & (ENFORCE_EGRESS | ENFORCE_INGRESS)))
		return POLICY_ALLOWED;
	if (!q)
		return DROP_INTERNAL_ERROR; /* cannot be: the index has its element */
	policy_context_from_nat(q, &x->transport, &x->new.to, &x->transport.tuple.source, program, enforce);
	q->revision = policy_revision();
	q->known = POLICY_KNOWN_PORT;
	if (policy_is_self(q))
		return POLICY_ALLOWED;
	ct_key(&q->key, &q->transport.tuple);
	return ct_find(&q->key) ? POLICY_ALLOWED : policy_verdict_new(skb, q);
}

/* Asks about a packet of connection *c, or about an ICMP error where x->error says what that quotes. */
static __noinline enum verdict policy_check_nat_slow(struct packet *p, const struct transport *t,
						     const struct nat_entry *c, struct flow_cache_entry *d,
						     __u32 enforce)
{
	struct policy_context *q = policy_context_get();
	int reason;

	if (!q)
		return drop(p, DROP_INTERNAL_ERROR); /* cannot be: the index has its element */
	policy_context_from_nat(q, t, c, &p->source, p->program, enforce);
	reason = policy_evaluate(p->skb, d);
	return reason == POLICY_ALLOWED ? NEXT : drop(p, reason);
}

/*
 * Lets a packet of connection *c pass, if policies allow it; `policed` (enum enforce_flag) says whose. `d` is the decision
 * about its way, which keeps the permit; NULL: the stack has it, and each packet is asked about.
 */
STAGE policy_check_nat(struct packet *p, struct nat_state *x, const struct nat_entry *c, struct flow_cache_entry *d,
		       __u32 enforce)
{
	const struct tuple *t = &x->transport.tuple;

	if (!policy_tracks() || likely(!enforce))
		return NEXT;
	if (d && likely(verdict_cache_covers(&d->verdict, c->source_port, c->destination_port, t->protocol,
					     x->transport.flags))) {
		verdict_cache_count(&d->verdict, p->skb->len);
		return NEXT;
	}
	return policy_check_nat_slow(p, &x->transport, c, d, enforce);
}

/*
 * The same for an answer that the stack delivers, whose decision (flow_cache_slot_egress) is about it as it comes. That is how the pod
 * knows it, but for who answers and where the pod's port was changed: then each packet is asked about.
 */
STAGE policy_check_reply(struct packet *p, struct nat_state *x, const struct nat_entry *c, __u32 enforce)
{
	struct flow_cache_entry *d;

	if (!policy_tracks() || likely(!enforce))
		return NEXT;
	if (unlikely(x->transport.tuple.destination_port != c->destination_port))
		return policy_check_nat_slow(p, &x->transport, c, 0, enforce);
	d = flow_cache_slot_egress(&p->source, &p->destination);
	if (!d)
		return drop(p, DROP_INTERNAL_ERROR); /* cannot be: every index has its element */
	return likely(verdict_cache_hit(p, d)) ? NEXT : policy_check_slow(p, d, c);
}

/* The same for an ICMP error about a packet of connection *c, which is x->error. */
STAGE policy_check_error(struct packet *p, struct nat_state *x, const struct nat_entry *c, __u32 enforce)
{
	if (!policy_tracks() || likely(!enforce))
		return NEXT;
	x->transport.tuple = x->error.tuple;
	return policy_check_nat_slow(p, &x->transport, c, 0, enforce);
}
