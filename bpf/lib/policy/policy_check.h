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
static __always_inline void ct_end_cached(struct flow_cache_entry *fc, const struct policy_context *pc,
					  struct ct_entry *ct)
{
	struct verdict_cache *cached = &fc->verdict;

	if (cached->packets) {
		if (!ct || cached->uncounted || !ct_has_cached(cached, &pc->transport)) {
			verdict_cache_end(fc);
			return;
		}
		ct_count(ct, ct_direction(ct, pc->reversed), cached->packets, cached->bytes);
		cached->packets = 0;
		cached->bytes = 0;
	}
	cached->protocol = 0;
}

static __always_inline void ct_cache_verdict(struct flow_cache_entry *fc, const struct policy_context *pc)
{
	const struct tuple *t = &pc->transport.tuple;
	struct verdict_cache *cached = &fc->verdict;

	cached->source_port = pc->source_port;
	cached->destination_port = pc->destination_port;
	cached->sender_port = t->source_port;
	cached->protocol = t->protocol;
	cached->uncounted = !!(pc->enforce & ENFORCE_UNCOUNTED);
	cached->revision = pc->revision;
	cached->until = verdict_cache_clock();
	cached->sender = t->source;
}

/*
 * Whether a session is to be judged again as opened by the other end too: policies have changed, nobody saw it begin, and a socket of who
 * counts as its opener has accepted it.
 */
static __always_inline bool ct_is_denied(struct __sk_buff *skb, const struct policy_context *pc,
					 const struct ct_entry *ct)
{
	if (ct->revision == pc->revision || !(ct->flags & CT_MIDSTREAM) || transport_is_syn(&pc->transport) ||
	    !(pc->enforce & (ENFORCE_EGRESS | ENFORCE_INGRESS)))
		return false;
	return socket_role(skb, ct_direction(ct, pc->reversed) ? SOCKETS_OF_RECEIVER : SOCKETS_OF_SENDER) ==
	       SOCKET_ROLE_SERVER;
}

/*
 * Whether the packet in `policy_scratch` may go on: POLICY_ALLOWED, or a reason to drop it. `fc` is the decision that the permit
 * is kept with; NULL: none is. A missing scratch must not open a pod.
 */
GLOBAL_FN int policy_evaluate(struct __sk_buff *skb, struct flow_cache_entry *fc)
{
	struct policy_context *pc = policy_context_get(); /* found, so that it has keys of maps */
	struct ct_new_entry *new_slot;
	struct ct_entry *ct;
	int reason;
	bool bare;

	if (!policy_tracks())
		return POLICY_ALLOWED;
	if (!pc)
		return DROP_INTERNAL_ERROR; /* cannot be: the index has its element */
	pc->revision = policy_revision();
	pc->known = pc->transport.kind == TRANSPORT_PORTS ? POLICY_KNOWN_PORT : POLICY_KNOWN_PROTOCOL;
	if (unlikely(pc->transport.kind == TRANSPORT_BROKEN))
		return DROP_BAD_FRAGMENT;
	if (unlikely(pc->transport.kind == TRANSPORT_UNREADABLE && pc->enforce & (ENFORCE_EGRESS | ENFORCE_INGRESS)))
		return DROP_UNREADABLE;
	if (pc->transport.kind == TRANSPORT_FRAGMENT ||
	    (pc->transport.kind == TRANSPORT_OTHER && transport_has_ports(pc->transport.tuple.protocol))) {
		reason = policy_verdict(skb, policy_directions(pc->enforce, false), false);
		if (reason != POLICY_ALLOWED && !policy_is_pending(reason) && pc->transport.kind == TRANSPORT_FRAGMENT)
			return DROP_FRAGMENT_WITHOUT_FIRST;
		return reason;
	}
	/* Nobody outside takes part in what a pod has to do with itself; a permit would not ask who sends. */
	if (unlikely(policy_is_self(pc))) {
		if (!policy_is_exempt(skb, pc))
			return policy_verdict(skb, policy_directions(pc->enforce, false), false);
		fc = 0;
	}
	pc->reversed = ct_key(&pc->key, &pc->transport.tuple);
	pc->new_slot = ct_new_index(&pc->key);
	new_slot = ct_new_slot(&pc->new_slot);
	ct = new_slot && ct_new_is(new_slot, &pc->key) ? &new_slot->entry : 0;
	if (!ct) {
		ct = ct_find_flushed(pc, new_slot);
		new_slot = 0;
	}
	if (fc && fc->verdict.protocol)
		ct_end_cached(fc, pc, ct);
	if (unlikely(pc->transport.kind == TRANSPORT_ERROR)) {
		pc->known = POLICY_KNOWN_PORT;
		return ct_icmp_error(skb, pc, ct);
	}
	pc->check_both = ct && ct_is_denied(skb, pc, ct);
	for (;;) { /* twice at most */
		reason = ct ? ct_continue(skb, pc, ct) : POLICY_NEW;
		if (likely(!new_slot || ct_new_is(new_slot, &pc->key)))
			break;
		/* It has moved meanwhile, or what was looked at was another one already, which has got the place. */
		new_slot = 0;
		ct = bpf_map_lookup_elem(&conntrack, &pc->key);
	}
	pc->initiator_unknown = reason == POLICY_INITIATOR_UNKNOWN;
	bare = reason == POLICY_NEW && !ct && transport_is_bare_tcp(skb, &pc->transport);
	if (bare)
		fc = 0; /* there is no session that a permit would be of */
	if (reason == POLICY_NEW || pc->initiator_unknown)
		reason = ct_create(skb, pc, bare, ct && !new_slot);
	if (unlikely(pc->initiator_unknown && reason != POLICY_ALLOWED && ct))
		ct_revoke(skb, pc, ct);
	if (reason == POLICY_ALLOWED && fc && ct_may_cache(&pc->transport))
		ct_cache_verdict(fc, pc);
	return reason;
}

/*
 * Whether to_pod will count the packet: the stack gets it for its options (endpoint_deliver) and delivers it, and its sender is not one
 * whose packets are counted where they leave it (to_pod_enforce).
 */
static __always_inline bool policy_counted_at_to_pod(const struct packet *p, const struct flow_cache_entry *fc)
{
	if (!p->options || p->program == PROGRAM_TO_POD)
		return false;
	return p->program != PROGRAM_FROM_POD || !(fc->enforce & (ENFORCE_EGRESS | ENFORCE_OBSERVED));
}

/* Asks about a packet that goes as it is, or whose source alone becomes that of connection *entry, unless that is NULL. */
static __noinline enum verdict policy_check_slow(struct packet *p, struct flow_cache_entry *fc,
						 const struct nat_entry *entry)
{
	struct policy_context *pc = policy_context_get();
	int reason;

	if (!pc)
		return drop(p, DROP_INTERNAL_ERROR); /* cannot be: the index has its element */
	pc->program = p->program;
	pc->enforce = fc->enforce;
	if (unlikely(policy_counted_at_to_pod(p, fc))) {
		pc->enforce |= ENFORCE_UNCOUNTED;
		fc = 0; /* a permit would not count either */
	}
	policy_context_read(p, pc);
	pc->source_port = pc->transport.tuple.source_port;
	pc->destination_port = pc->transport.tuple.destination_port;
	pc->sender = p->source;
	pc->source_after_nat = entry ? entry->source : pc->transport.tuple.source;
	pc->source_port_after_nat = entry ? entry->source_port : pc->source_port;
	pc->destination_before_nat = pc->transport.tuple.destination;
	pc->destination_port_before_nat = pc->destination_port;
	pc->nat_reply = entry && policy_context_is_reply(entry);
	reason = policy_evaluate(p->skb, fc);
	return reason == POLICY_ALLOWED ? NEXT : drop(p, reason);
}

/* Lets a packet pass that goes as it is, if policies allow it; fc->policed says whose. */
STAGE policy_check(struct packet *p, struct flow_cache_entry *fc)
{
	if (!policy_tracks() || likely(!fc->enforce) || likely(verdict_cache_hit(p, fc)))
		return NEXT;
	return policy_check_slow(p, fc, 0);
}
