/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The policy stage for pods that policies select or flows observe: verdict cache, then conntrack, then policies. */
#pragma once

#include "lib/policy/conntrack.h"

/*
 * Whether later packets of the connection may use a cached verdict. A SYN or FIN is recorded by now. A reset may
 * belong to no entry.
 */
static __always_inline bool ct_may_cache(const struct transport *t)
{
	return t->kind == TRANSPORT_PORTS && transport_has_ports(t->tuple.protocol) &&
	       t->tuple.protocol != PROTOCOL_SCTP && !(t->flags & TCP_RST);
}

/* Whether the cached verdict is for packets like this one. */
static __always_inline bool ct_has_cached(const struct verdict_cache *cached, const struct transport *t)
{
	return cached->protocol == t->tuple.protocol && cached->sender_port == t->tuple.source_port &&
	       cached->destination_port == t->tuple.destination_port &&
	       address_equals(&cached->sender, &t->tuple.source);
}

/*
 * Ends a cached verdict, as verdict_cache_end, without a lookup if it is of `ct`, the entry of this packet, which
 * may be NULL.
 */
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

/* Caches in `fc`, unless that is NULL, that the packet is allowed. */
static __always_inline void ct_cache_verdict(struct flow_cache_entry *fc, const struct policy_context *pc)
{
	const struct tuple *t = &pc->transport.tuple;
	struct verdict_cache *cached;

	if (!fc || !ct_may_cache(&pc->transport))
		return;
	cached = &fc->verdict;
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
 * Whether the reverse direction must be allowed as well: policies have changed, the start of the connection was
 * not seen, and its supposed initiator has an accepted socket.
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

/* policy_evaluate for all but packets that may create an entry: for these, POLICY_NEW. */
GLOBAL_FN int policy_evaluate_known(struct __sk_buff *skb, struct flow_cache_entry *fc)
{
	struct policy_context *pc =
		policy_context_get(); /* looked up again: map values may be keys, arguments may not */
	struct ct_new_entry *new_slot;
	struct ct_entry *ct;
	int reason;

	if (!policy_tracks())
		return POLICY_ALLOWED;
	if (!pc)
		return DROP_INTERNAL_ERROR;
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
	/* Traffic of a pod with itself. Not cached: the cache does not check the sender. */
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
	for (;;) { /* at most twice */
		reason = ct ? ct_continue(skb, pc, ct) : POLICY_NEW;
		if (likely(!new_slot || ct_new_is(new_slot, &pc->key)))
			break;
		/* The entry was moved or replaced meanwhile. */
		new_slot = 0;
		ct = bpf_map_lookup_elem(&conntrack, &pc->key);
	}
	pc->initiator_unknown = reason == POLICY_INITIATOR_UNKNOWN;
	pc->has_entry = !!ct;
	pc->flushed = ct && !new_slot;
	if (reason == POLICY_ALLOWED)
		ct_cache_verdict(fc, pc);
	return pc->initiator_unknown ? POLICY_NEW : reason;
}

/* policy_evaluate after POLICY_NEW of policy_evaluate_known. */
GLOBAL_FN int policy_evaluate_new(struct __sk_buff *skb, struct flow_cache_entry *fc)
{
	struct policy_context *pc =
		policy_context_get(); /* looked up again: map values may be keys, arguments may not */
	struct ct_entry *ct;
	int reason;
	bool bare;

	if (!policy_tracks() || !pc)
		return DROP_INTERNAL_ERROR;
	bare = !pc->has_entry && transport_is_bare_tcp(skb, &pc->transport);
	reason = ct_create(skb, pc, bare);
	if (reason == POLICY_ALLOWED && !bare && likely(!policy_is_self(pc)))
		ct_cache_verdict(fc, pc);
	if (likely(!pc->initiator_unknown || reason == POLICY_ALLOWED))
		return reason;
	ct = ct_find(&pc->key);
	if (ct)
		ct_revoke(skb, pc, ct);
	return reason;
}

/*
 * Evaluates the packet in `policy_scratch`: POLICY_ALLOWED or a drop reason. The verdict is cached in `fc` unless
 * that is NULL. Fails closed. Two functions, one after the other: the stack has no place for one in the other.
 */
static __always_inline int policy_evaluate(struct __sk_buff *skb, struct flow_cache_entry *fc)
{
	int reason = policy_evaluate_known(skb, fc);

	return reason == POLICY_NEW ? policy_evaluate_new(skb, fc) : reason;
}

/*
 * Whether to_pod counts the packet: the kernel stack delivers packets with options, and counts them unless
 * from_pod has.
 */
static __always_inline bool policy_counted_at_to_pod(const struct packet *p, const struct flow_cache_entry *fc)
{
	if (!p->options || p->program == PROGRAM_TO_POD)
		return false;
	return p->program != PROGRAM_FROM_POD || !(fc->enforce & (ENFORCE_EGRESS | ENFORCE_OBSERVED));
}

/* What a program knows of the sender: at a parent of macvlan devices as much as at a pod's device or the uplink. */
static __always_inline enum program policy_program(enum program program)
{
	if (config_macvlan && program == PROGRAM_FROM_MACVLAN)
		return PROGRAM_FROM_POD;
	return config_macvlan && program == PROGRAM_TO_MACVLAN ? PROGRAM_FROM_WIRE : program;
}

/* Evaluates an unchanged packet, or one whose source alone is translated, by *entry if that is not NULL. */
static __noinline enum verdict policy_check_slow(struct packet *p, struct flow_cache_entry *fc,
						 const struct nat_entry *entry)
{
	struct policy_context *pc = policy_context_get();
	int reason;

	if (!pc)
		return drop(p, DROP_INTERNAL_ERROR);
	pc->program = policy_program(p->program);
	pc->enforce = fc->enforce;
	if (unlikely(policy_counted_at_to_pod(p, fc))) {
		pc->enforce |= ENFORCE_UNCOUNTED;
		fc = 0; /* the cache would count the packets */
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

/* Applies policies to an unchanged packet; fc->enforce says which. */
STAGE policy_check(struct packet *p, struct flow_cache_entry *fc)
{
	if (!policy_tracks() || likely(!fc->enforce) || likely(verdict_cache_hit(p, fc)))
		return NEXT;
	return policy_check_slow(p, fc, 0);
}
