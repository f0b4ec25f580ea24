/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sessions: what pods that policies select have to do with whom, so that answers need no rule of their own. A
 * session is known to both of its ends by the addresses and ports that the pods themselves have, whatever translation
 * makes of them in between; `nat` is for translation and knows nothing of this.
 *
 * A packet asks the permit of its decision first (verdict_cache.h). Only what has none comes here.
 */
#pragma once

#include "lib/fwd/endpoint.h"
#include "lib/policy/policy_verdict.h"

/* Tells those who watch (--flows) what a packet has changed: `what` as for flow_ct_event. */
static __noinline void ct_report(struct __sk_buff *skb, struct policy_context *q, const struct ct_entry *s, __u32 what)
{
	if (config_flows < FLOWS_POLICY)
		return;
	q->origin.ifindex = skb->ifindex;
	q->origin.program = q->program;
	q->origin.tcp_flags = q->transport.flags;
	flow_ct_event(&q->key, s, &q->origin, what);
}

/* Notes who has to do with a session that begins, for those who watch. */
static __always_inline void ct_set_identities(const struct policy_context *q, struct ct_entry *s)
{
	bool reversed = s->flags & CT_REVERSED;

	s->source = s->destination = 0;
	if (config_flows < FLOWS_POLICY || !flow_sampled(&q->key, s))
		return;
	s->source = policy_identity(reversed ? &q->key.destination : &q->key.source, IDENTITY_BY_ALL);
	s->destination = policy_identity(reversed ? &q->key.source : &q->key.destination, IDENTITY_BY_ALL);
}

/* Whether the end that has opened a session is no pod here. A pod's own device has shown that its packets are the pod's; the wire brings none of a pod here. */
static __always_inline bool ct_is_inbound(const struct policy_context *q, bool reply)
{
	const struct tuple *t = &q->transport.tuple;

	if (q->program == PROGRAM_FROM_POD && !reply)
		return false;
	if (q->program != PROGRAM_FROM_POD && q->program != PROGRAM_TO_POD && !reply)
		return true;
	return !endpoint_of(reply ? &t->destination : &t->source);
}

/* The flags of a session that its first packet here makes. */
static __always_inline __u32 ct_initial_flags(const struct policy_context *q, bool reply)
{
	__u32 flags = policy_directions(q->enforce, reply);

	if (ct_is_inbound(q, reply))
		flags |= CT_INBOUND;
	if (q->check_both || (!reply && !transport_may_initiate(&q->transport)))
		flags |= CT_MIDSTREAM;
	if ((bool)q->reversed != reply)
		flags |= CT_REVERSED;
	if (reply)
		flags |= CT_REPLIED;
	if (q->transport.flags & TCP_FIN)
		flags |= reply ? CT_REPLY_FIN : CT_FIN;
	return flags;
}

/* Keeps the session that begins. `settled`: the one before it, with the same key, is in `conntrack`. */
static __always_inline void ct_insert(struct __sk_buff *skb, struct policy_context *q, bool flushed)
{
	if (likely(!flushed && ct_new_insert(&q->new_slot, &q->key, &q->entry)))
		return;
	q->entry.flags |= CT_REPORTED;
	ct_report(skb, q, &q->entry, flow_first_kind(q->entry.flags) | FLOW_FIRST);
	ct_store(&q->key, &q->entry);
}

/*
 * Begins a session, if the policies allow the packet. What comes late, of one that is over and kept no more, begins none: a `bare` packet, as an
 * acknowledgment or a FIN that is repeated. Nor does a reset, which ends what is not known anyway.
 */
static __always_inline int ct_create(struct __sk_buff *skb, struct policy_context *q, bool bare, bool flushed)
{
	struct ct_entry *s = &q->entry;
	int reason = policy_verdict_new(skb, q);
	bool reply = q->reply;

	if (reason != POLICY_ALLOWED || bare || q->transport.flags & TCP_RST)
		return reason;
	s->created = s->seen = ktime_coarse();
	s->packets[0] = s->packets[1] = s->bytes[0] = s->bytes[1] = 0;
	if (!(q->enforce & ENFORCE_UNCOUNTED))
		ct_count(s, reply, 1, skb->len);
	s->revision = q->revision;
	s->slot = CT_NO_SLOT;
	s->flags = ct_initial_flags(q, reply);
	ct_set_identities(q, s);
	ct_insert(skb, q, flushed);
	return POLICY_ALLOWED;
}

/* Notes that a session is no longer allowed. */
static __always_inline void ct_revoke(struct __sk_buff *skb, struct policy_context *q, struct ct_entry *s)
{
	__u32 flags = __sync_fetch_and_or(&s->flags, CT_REVOKED | CT_REPORTED);

	if (!(flags & CT_REVOKED))
		ct_report(skb, q, s, FLOW_REVOKED | (flags & CT_REPORTED ? 0 : FLOW_FIRST));
}

/*
 * Judges a session again, if policies have changed since, or that end for which nobody has judged it yet. A session that
 * is no longer allowed stays, so that its packets are not taken for those of a new one.
 */
static __always_inline int ct_reevaluate(struct __sk_buff *skb, struct policy_context *q, struct ct_entry *s,
					 bool reply)
{
	__u32 directions = policy_directions(q->enforce, reply), judged = CT_EGRESS | CT_INGRESS;
	bool renewed = s->revision != q->revision;
	__u32 flags = s->flags, missing = renewed ? directions : directions & ~flags;
	int reason;

	if (likely(!missing))
		return POLICY_ALLOWED;
	reason = q->check_both ? policy_verdict(skb, policy_directions(q->enforce, !reply), !reply) : POLICY_ALLOWED;
	if (reason == POLICY_ALLOWED)
		reason = policy_verdict(skb, missing, reply);
	if (reason != POLICY_ALLOWED) {
		if (reply && flags & CT_MIDSTREAM)
			return POLICY_INITIATOR_UNKNOWN;
		if (!(renewed && flags & judged) && !(flags & CT_REPLIED))
			return transport_may_initiate(&q->transport) && reply ? POLICY_NEW
									      : reason; /* it has never been allowed */
		ct_revoke(skb, q, s);
		return reason;
	}
	if (renewed)
		__sync_fetch_and_and(&s->flags, ~(judged | CT_REVOKED));
	if (missing & CT_EGRESS)
		s->egress = q->entry.egress;
	if (missing & CT_INGRESS)
		s->ingress = q->entry.ingress;
	__sync_fetch_and_or(&s->flags, missing);
	s->revision = q->revision;
	return POLICY_ALLOWED;
}

/* Tells once that TCP has ended a session. */
static __always_inline void ct_report_close(struct __sk_buff *skb, struct policy_context *q, struct ct_entry *s)
{
	__u32 flags = __sync_fetch_and_or(&s->flags, CT_REPORTED | CT_REPORTED_END);

	if (!(flags & CT_REPORTED_END))
		ct_report(skb, q, s, FLOW_CLOSED | (flags & CT_REPORTED ? 0 : FLOW_FIRST));
}

/* What a packet that is allowed changes of its session, which has the flags `before`. */
static __always_inline __u32 ct_packet_flags(const struct transport *t, bool reply, __u32 before)
{
	__u32 flags = reply ? CT_REPLIED : 0;

	if (!reply && before & CT_REPLIED && !(t->flags & TCP_SYN))
		flags |= CT_ASSURED;
	if (t->flags & TCP_FIN)
		flags |= reply ? CT_REPLY_FIN : CT_FIN;
	if (t->flags & TCP_RST)
		flags |= CT_RESET;
	return flags;
}

/* Notes a packet that is allowed. */
static __always_inline void ct_update(struct __sk_buff *skb, struct policy_context *q, struct ct_entry *s, bool reply,
				      __u64 now)
{
	__u32 added = ct_packet_flags(&q->transport, reply, s->flags) & ~s->flags, old;

	if (!(q->enforce & ENFORCE_UNCOUNTED))
		ct_count(s, reply, 1, skb->len);
	if (now - s->seen >= NSEC_PER_SEC)
		s->seen = now;
	if (likely(!added))
		return;
	old = __sync_fetch_and_or(&s->flags, added);
	if (added & ~old & CT_REPLIED && old & CT_REPORTED)
		ct_report(skb, q, s, FLOW_ANSWERED);
	if (ct_is_closed(old | added))
		ct_report_close(skb, q, s);
	else if (added & ~old & CT_ASSURED && s->slot != CT_NO_SLOT)
		ct_promote(&q->key, s);
}

/*
 * The session of a packet that is not in its place among the young ones. What opens a connection is not looked for in `conntrack`, whose memory
 * would be in no cache: unless it may be sent again, it is of another one than what is there.
 */
static __always_inline struct ct_entry *ct_find_flushed(const struct policy_context *q, const struct ct_new_entry *new)
{
	if (transport_is_syn(&q->transport) && new && new->unreplied_until < ct_new_clock(ktime_coarse()))
		return 0;
	return bpf_map_lookup_elem(&conntrack, &q->key);
}

/* A packet of a session that is known; POLICY_NEW if another one begins in its place. */
static __always_inline int ct_continue(struct __sk_buff *skb, struct policy_context *q, struct ct_entry *s)
{
	bool reply = ct_direction(s, q->reversed);
	int reason;

	if (transport_is_syn(&q->transport) && (reply || ct_is_closed(s->flags) || s->flags & CT_REVOKED))
		return POLICY_NEW;
	reason = ct_reevaluate(skb, q, s, reply);
	if (reason == POLICY_ALLOWED)
		ct_update(skb, q, s, reply, ktime_coarse());
	return reason;
}

/* An ICMP error about a packet of a session: as good as that. Nothing begins with it. */
static __always_inline int ct_icmp_error(struct __sk_buff *skb, struct policy_context *q, const struct ct_entry *s)
{
	__u32 directions;
	bool reply;

	if (!s)
		return policy_verdict_error(skb, q);
	reply = ct_direction(s, q->reversed);
	directions = policy_directions(q->enforce, reply);
	if (s->revision == q->revision)
		directions &= ~s->flags;
	return directions ? policy_verdict(skb, directions, reply) : POLICY_ALLOWED;
}
