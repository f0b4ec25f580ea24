/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Evaluates a packet of a pod that policies select, or that flows observe: verdict cache, conntrack, policies. */
#pragma once

#include "lib/policy/conntrack.h"

/*
 * Whether the packets that follow this one need not be asked about for a while: also those that follow a SYN or a FIN, which is noted by
 * now. A reset may be of no session.
 */
static __always_inline bool ct_may_cache(const struct transport *t)
{
	return t->kind == TRANSPORT_PORTS && transport_has_ports(t->tuple.protocol) &&
	       t->tuple.protocol != PROTOCOL_SCTP && !(t->flags & TCP_RST);
}

/* Whether the permit is of packets like this one. */
static __always_inline bool ct_has_cached(const struct verdict_cache *cached, const struct transport *t)
{
	return cached->protocol == t->tuple.protocol && cached->sender_port == t->tuple.source_port &&
	       cached->destination_port == t->tuple.destination_port &&
	       address_equals(&cached->sender, &t->tuple.source);
}

/* Takes the permit back as verdict_cache_end, which it asks only if the session is not at hand: `s`, of this packet, may be NULL. */
static __always_inline void ct_end_cached(struct flow_cache_entry *d, const struct policy_context *q,
					  struct ct_entry *s)
{
	struct verdict_cache *cached = &d->verdict;

	if (cached->packets) {
		if (!s || cached->uncounted || !ct_has_cached(cached, &q->transport)) {
			verdict_cache_end(d);
			return;
		}
		ct_count(s, ct_direction(s, q->reversed), cached->packets, cached->bytes);
		cached->packets = 0;
		cached->bytes = 0;
	}
	cached->protocol = 0;
}

static __always_inline void ct_cache_verdict(struct flow_cache_entry *d, const struct policy_context *q)
{
	const struct tuple *t = &q->transport.tuple;
	struct verdict_cache *cached = &d->verdict;

	cached->source_port = q->source_port;
	cached->destination_port = q->destination_port;
	cached->sender_port = t->source_port;
	cached->protocol = t->protocol;
	cached->uncounted = !!(q->enforce & ENFORCE_UNCOUNTED);
	cached->revision = q->revision;
	cached->until = verdict_cache_clock();
	cached->sender = t->source;
}

/*
 * Whether a session is to be judged again as opened by the other end too: policies have changed, nobody saw it begin, and a socket of who
 * counts as its opener has accepted it.
 */
static __always_inline bool ct_is_denied(struct __sk_buff *skb, const struct policy_context *q,
					 const struct ct_entry *s)
{
	if (s->revision == q->revision || !(s->flags & CT_MIDSTREAM) || transport_is_syn(&q->transport) ||
	    !(q->enforce & (ENFORCE_EGRESS | ENFORCE_INGRESS)))
		return false;
	return socket_role(skb, ct_direction(s, q->reversed) ? SOCKETS_OF_RECEIVER : SOCKETS_OF_SENDER) ==
	       SOCKET_ROLE_SERVER;
}

/*
 * Whether the packet in `policy_scratch` may go on: POLICY_ALLOWED, or a reason to drop it. `d` is the decision that the permit
 * is kept with; NULL: none is. A missing scratch must not open a pod.
 */
GLOBAL_FN int policy_evaluate(struct __sk_buff *skb, struct flow_cache_entry *d)
{
	struct policy_context *q = policy_context_get(); /* found, so that it has keys of maps */
	struct ct_new_entry *new_slot;
	struct ct_entry *s;
	int reason;
	bool bare;

	if (!policy_tracks())
		return POLICY_ALLOWED;
	if (!q)
		return DROP_INTERNAL_ERROR; /* cannot be: the index has its element */
	q->revision = policy_revision();
	q->known = q->transport.kind == TRANSPORT_PORTS ? POLICY_KNOWN_PORT : POLICY_KNOWN_PROTOCOL;
	if (unlikely(q->transport.kind == TRANSPORT_BROKEN))
		return DROP_BAD_FRAGMENT;
	if (unlikely(q->transport.kind == TRANSPORT_UNREADABLE && q->enforce & (ENFORCE_EGRESS | ENFORCE_INGRESS)))
		return DROP_UNREADABLE;
	if (q->transport.kind == TRANSPORT_FRAGMENT ||
	    (q->transport.kind == TRANSPORT_OTHER && transport_has_ports(q->transport.tuple.protocol))) {
		reason = policy_verdict(skb, policy_directions(q->enforce, false), false);
		if (reason != POLICY_ALLOWED && !policy_is_pending(reason) && q->transport.kind == TRANSPORT_FRAGMENT)
			return DROP_FRAGMENT_WITHOUT_FIRST;
		return reason;
	}
	/* Nobody outside takes part in what a pod has to do with itself; a permit would not ask who sends. */
	if (unlikely(policy_is_self(q))) {
		if (!policy_is_exempt(skb, q))
			return policy_verdict(skb, policy_directions(q->enforce, false), false);
		d = 0;
	}
	q->reversed = ct_key(&q->key, &q->transport.tuple);
	q->new_slot = ct_new_index(&q->key);
	new_slot = ct_new_slot(&q->new_slot);
	s = new_slot && ct_new_is(new_slot, &q->key) ? &new_slot->entry : 0;
	if (!s) {
		s = ct_find_flushed(q, new_slot);
		new_slot = 0;
	}
	if (d && d->verdict.protocol)
		ct_end_cached(d, q, s);
	if (unlikely(q->transport.kind == TRANSPORT_ERROR)) {
		q->known = POLICY_KNOWN_PORT;
		return ct_icmp_error(skb, q, s);
	}
	q->check_both = s && ct_is_denied(skb, q, s);
	for (;;) { /* twice at most */
		reason = s ? ct_continue(skb, q, s) : POLICY_NEW;
		if (likely(!new_slot || ct_new_is(new_slot, &q->key)))
			break;
		/* It has moved meanwhile, or what was looked at was another one already, which has got the place. */
		new_slot = 0;
		s = bpf_map_lookup_elem(&conntrack, &q->key);
	}
	q->initiator_unknown = reason == POLICY_INITIATOR_UNKNOWN;
	bare = reason == POLICY_NEW && !s && transport_is_bare_tcp(skb, &q->transport);
	if (bare)
		d = 0; /* there is no session that a permit would be of */
	if (reason == POLICY_NEW || q->initiator_unknown)
		reason = ct_create(skb, q, bare, s && !new_slot);
	if (unlikely(q->initiator_unknown && reason != POLICY_ALLOWED && s))
		ct_revoke(skb, q, s);
	if (reason == POLICY_ALLOWED && d && ct_may_cache(&q->transport))
		ct_cache_verdict(d, q);
	return reason;
}

/*
 * Whether to_pod will count the packet: the stack gets it for its options (endpoint_deliver) and delivers it, and its sender is not one
 * whose packets are counted where they leave it (to_pod_enforce).
 */
static __always_inline bool policy_counted_at_to_pod(const struct packet *p, const struct flow_cache_entry *d)
{
	if (!p->options || p->program == PROGRAM_TO_POD)
		return false;
	return p->program != PROGRAM_FROM_POD || !(d->enforce & (ENFORCE_EGRESS | ENFORCE_OBSERVED));
}

/* Asks about a packet that goes as it is, or whose source alone becomes that of connection *c, unless that is NULL. */
static __noinline enum verdict policy_check_slow(struct packet *p, struct flow_cache_entry *d,
						 const struct nat_entry *c)
{
	struct policy_context *q = policy_context_get();
	int reason;

	if (!q)
		return drop(p, DROP_INTERNAL_ERROR); /* cannot be: the index has its element */
	q->program = p->program;
	q->enforce = d->enforce;
	if (unlikely(policy_counted_at_to_pod(p, d))) {
		q->enforce |= ENFORCE_UNCOUNTED;
		d = 0; /* a permit would not count either */
	}
	policy_context_read(p, q);
	q->source_port = q->transport.tuple.source_port;
	q->destination_port = q->transport.tuple.destination_port;
	q->sender = p->source;
	q->source_after_nat = c ? c->source : q->transport.tuple.source;
	q->source_port_after_nat = c ? c->source_port : q->source_port;
	q->destination_before_nat = q->transport.tuple.destination;
	q->destination_port_before_nat = q->destination_port;
	q->nat_reply = c && policy_context_is_reply(c);
	reason = policy_evaluate(p->skb, d);
	return reason == POLICY_ALLOWED ? NEXT : drop(p, reason);
}

/* Lets a packet pass that goes as it is, if policies allow it; d->policed says whose. */
STAGE policy_check(struct packet *p, struct flow_cache_entry *d)
{
	if (!policy_tracks() || likely(!d->enforce) || likely(verdict_cache_hit(p, d)))
		return NEXT;
	return policy_check_slow(p, d, 0);
}
