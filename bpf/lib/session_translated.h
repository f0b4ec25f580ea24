/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sessions of packets that are translated. Policies know the pod by its own address, whatever others get to see, and the
 * backend by its own, whatever it was asked for as: the packet's source, and the destination that it gets.
 */
#pragma once

#include "decision.h"
#include "session.h"
#include "translation.h"

/* Fills *q with a packet of connection *c, as the pods at its ends know it. */
static __always_inline void session_take_translated(struct inquiry *q, const struct transport *t,
						    const struct connection *c, const struct address *sender,
						    __u32 program, __u32 policed)
{
	q->program = program;
	q->policed = policed;
	q->transport = *t;
	inquiry_take_flags(&q->transport);
	q->asked = t->tuple.destination;
	q->asked_port = t->tuple.destination_port;
	q->transport.tuple.destination = c->destination;
	q->transport.tuple.destination_port = c->destination_port;
	if (t->kind == TRANSPORT_PIECE)
		q->transport.kind = TRANSPORT_PORTS; /* those of the first one */
	q->sender = *sender;
	q->peer = c->source;
	q->peer_port = c->source_port;
	q->source_port = c->source_port;
	q->destination_port = c->destination_port;
	q->replies = inquiry_replies(c);
}

/*
 * Whether policies allow the connection that x->beginning is to begin: SESSION_ALLOWED or a reason to drop. Asked before it has an entry or a
 * port, so that who may send nothing takes neither. A session that is there already is evaluated behind translation, as all packets are.
 */
SEPARATE int session_may_begin(struct __sk_buff *skb, const struct translation *x, __u32 program, __u32 policed)
{
	struct inquiry *q = inquiry_place();

	if (!policy_tracks() || !x || !(policed & (POLICED_EGRESS | POLICED_INGRESS)))
		return SESSION_ALLOWED;
	if (!q)
		return DROP_POLICY_CLOSED; /* cannot be: the index has its element */
	session_take_translated(q, &x->transport, &x->beginning.to, &x->transport.tuple.source, program, policed);
	q->revision = policy_revision();
	q->known = POLICY_KNOWN_PORT;
	if (session_is_to_itself(q))
		return SESSION_ALLOWED;
	session_key(&q->key, &q->transport.tuple);
	return session_find(&q->key) ? SESSION_ALLOWED : session_ask_unknown(skb, q);
}

/* Asks about a packet of connection *c, or about an ICMP error where x->error says what that quotes. */
static __noinline enum verdict session_ask_translated(struct packet *p, const struct transport *t,
						      const struct connection *c, struct decision *d, __u32 policed)
{
	struct inquiry *q = inquiry_place();
	int reason;

	if (!q)
		return drop(p, DROP_POLICY_CLOSED); /* cannot be: the index has its element */
	session_take_translated(q, t, c, &p->source, p->program, policed);
	reason = session_judge(p->skb, d);
	return reason == SESSION_ALLOWED ? NEXT : drop(p, reason);
}

/*
 * Lets a packet of connection *c pass, if policies allow it; `policed` (enum policed_flag) says whose. `d` is the decision
 * about its way, which keeps the permit; NULL: the stack has it, and each packet is asked about.
 */
STAGE session_pass_translated(struct packet *p, struct translation *x, const struct connection *c, struct decision *d,
			      __u32 policed)
{
	const struct tuple *t = &x->transport.tuple;

	if (!policy_tracks() || likely(!policed))
		return NEXT;
	if (d &&
	    likely(permit_covers(&d->permit, c->source_port, c->destination_port, t->protocol, x->transport.flags))) {
		permit_use(&d->permit, p->skb->len);
		return NEXT;
	}
	return session_ask_translated(p, &x->transport, c, d, policed);
}

/*
 * The same for an answer that the stack delivers, whose decision (decision_place_egress) is about it as it comes. That is how the pod
 * knows it, but for who answers and where the pod's port was changed: then each packet is asked about.
 */
STAGE session_pass_answer(struct packet *p, struct translation *x, const struct connection *c, __u32 policed)
{
	struct decision *d;

	if (!policy_tracks() || likely(!policed))
		return NEXT;
	if (unlikely(x->transport.tuple.destination_port != c->destination_port))
		return session_ask_translated(p, &x->transport, c, 0, policed);
	d = decision_place_egress(&p->source, &p->destination);
	if (!d)
		return drop(p, DROP_POLICY_CLOSED); /* cannot be: every index has its element */
	return likely(permit_holds(p, d)) ? NEXT : session_ask_plain(p, d, c);
}

/* The same for an ICMP error about a packet of connection *c, which is x->error. */
STAGE session_pass_error(struct packet *p, struct translation *x, const struct connection *c, __u32 policed)
{
	if (!policy_tracks() || likely(!policed))
		return NEXT;
	x->transport.tuple = x->error.tuple;
	return session_ask_translated(p, &x->transport, c, 0, policed);
}
