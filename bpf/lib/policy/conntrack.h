/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Conntrack: connections of pods that policies select, so that replies need no rule. Entries have the addresses
 * and ports that the pods themselves see, before SNAT and after DNAT; the NAT tables are independent of them.
 * Packets whose verdict is cached (verdict_cache.h) do not come here.
 */
#pragma once

#include "lib/fwd/endpoint.h"
#include "lib/policy/policy_verdict.h"

/* Reports a change of an entry to --flows. `kind` as in flow_ct_event. */
static __noinline void ct_report(struct __sk_buff *skb, struct policy_context *pc, const struct ct_entry *ct,
				 __u32 kind)
{
	if (config_flows < FLOWS_POLICY)
		return;
	pc->origin.ifindex = skb->ifindex;
	pc->origin.program = pc->program;
	pc->origin.tcp_flags = pc->transport.flags;
	flow_ct_event(&pc->key, ct, &pc->origin, kind);
}

/* Stores the identities of both ends, for flow events. */
static __always_inline void ct_set_identities(const struct policy_context *pc, struct ct_entry *ct)
{
	bool reversed = ct->flags & CT_REVERSED;

	ct->source = ct->destination = 0;
	if (config_flows < FLOWS_POLICY || !flow_sampled(&pc->key, ct))
		return;
	ct->source = policy_identity(reversed ? &pc->key.destination : &pc->key.source, IDENTITY_BY_ALL);
	ct->destination = policy_identity(reversed ? &pc->key.source : &pc->key.destination, IDENTITY_BY_ALL);
}

/*
 * Whether the initiator is not a local pod. At from_pod the source is validated; from the wire no packet comes
 * from a local pod.
 */
static __always_inline bool ct_is_inbound(const struct policy_context *pc, bool reply)
{
	const struct tuple *t = &pc->transport.tuple;

	if (pc->program == PROGRAM_FROM_POD && !reply)
		return false;
	if (pc->program != PROGRAM_FROM_POD && pc->program != PROGRAM_TO_POD && !reply)
		return true;
	return !endpoint_of(reply ? &t->destination : &t->source);
}

/* Flags of an entry that its first packet, in `policy_scratch`, creates. */
GLOBAL_FN __u32 ct_initial_flags(bool reply)
{
	struct policy_context *pc =
		policy_context_get(); /* looked up again: map values may be keys, arguments may not */
	__u32 flags;

	if (!pc)
		return 0;
	flags = policy_directions(pc->enforce, reply);
	if (ct_is_inbound(pc, reply))
		flags |= CT_INBOUND;
	if (pc->check_both || (!reply && !transport_may_initiate(&pc->transport)))
		flags |= CT_MIDSTREAM;
	if ((bool)pc->reversed != reply)
		flags |= CT_REVERSED;
	if (reply)
		flags |= CT_REPLIED;
	if (pc->transport.flags & TCP_FIN)
		flags |= reply ? CT_REPLY_FIN : CT_FIN;
	return flags;
}

/* Inserts a new entry. */
static __always_inline void ct_insert(struct __sk_buff *skb, struct policy_context *pc)
{
	if (likely(!pc->flushed && ct_new_insert(&pc->new_slot, &pc->key, &pc->entry)))
		return;
	pc->entry.flags |= CT_REPORTED;
	ct_report(skb, pc, &pc->entry, flow_first_kind(pc->entry.flags) | FLOW_FIRST);
	ct_store(&pc->key, &pc->entry);
}

/*
 * Evaluates and creates an entry. A bare packet (a late ACK or a retransmitted FIN of a closed connection) and a
 * reset create none.
 */
static __always_inline int ct_create(struct __sk_buff *skb, struct policy_context *pc, bool bare)
{
	struct ct_entry *ct = &pc->entry;
	int reason = policy_verdict_new(skb, pc);
	bool reply = pc->reply;

	if (reason != POLICY_ALLOWED || bare || pc->transport.flags & TCP_RST)
		return reason;
	ct->created = ct->seen = ktime_coarse();
	ct->packets[0] = ct->packets[1] = ct->bytes[0] = ct->bytes[1] = 0;
	if (!(pc->enforce & ENFORCE_UNCOUNTED))
		ct_count(ct, reply, 1, skb->len);
	ct->revision = pc->revision;
	ct->slot = CT_NO_SLOT;
	ct->flags = ct_initial_flags(reply);
	ct_set_identities(pc, ct);
	ct_insert(skb, pc);
	return POLICY_ALLOWED;
}

/* Revokes an entry: policies no longer allow it. */
static __always_inline void ct_revoke(struct __sk_buff *skb, struct policy_context *pc, struct ct_entry *ct)
{
	__u32 flags = __sync_fetch_and_or(&ct->flags, CT_REVOKED | CT_REPORTED);

	if (!(flags & CT_REVOKED))
		ct_report(skb, pc, ct, FLOW_REVOKED | (flags & CT_REPORTED ? 0 : FLOW_FIRST));
}

/*
 * Re-evaluates an entry after a policy change, or for an end that was not evaluated yet. A denied entry stays, so
 * that its packets do not count as a new connection.
 */
static __always_inline int ct_reevaluate(struct __sk_buff *skb, struct policy_context *pc, struct ct_entry *ct,
					 bool reply)
{
	__u32 directions = policy_directions(pc->enforce, reply), evaluated = CT_EGRESS | CT_INGRESS;
	bool renewed = ct->revision != pc->revision;
	__u32 flags = ct->flags, missing = renewed ? directions : directions & ~flags;
	int reason;

	if (likely(!missing))
		return POLICY_ALLOWED;
	reason = pc->check_both ? policy_verdict(skb, policy_directions(pc->enforce, !reply), !reply) : POLICY_ALLOWED;
	if (reason == POLICY_ALLOWED)
		reason = policy_verdict(skb, missing, reply);
	if (reason != POLICY_ALLOWED) {
		if (reply && flags & CT_MIDSTREAM)
			return POLICY_INITIATOR_UNKNOWN;
		if (!(renewed && flags & evaluated) && !(flags & CT_REPLIED))
			return transport_may_initiate(&pc->transport) && reply ? POLICY_NEW
									       : reason; /* was never allowed */
		ct_revoke(skb, pc, ct);
		return reason;
	}
	if (renewed)
		__sync_fetch_and_and(&ct->flags, ~(evaluated | CT_REVOKED));
	if (missing & CT_EGRESS)
		ct->egress = pc->entry.egress;
	if (missing & CT_INGRESS)
		ct->ingress = pc->entry.ingress;
	__sync_fetch_and_or(&ct->flags, missing);
	ct->revision = pc->revision;
	return POLICY_ALLOWED;
}

/* Reports once that TCP has closed the connection. */
static __always_inline void ct_report_close(struct __sk_buff *skb, struct policy_context *pc, struct ct_entry *ct)
{
	__u32 flags = __sync_fetch_and_or(&ct->flags, CT_REPORTED | CT_REPORTED_END);

	if (!(flags & CT_REPORTED_END))
		ct_report(skb, pc, ct, FLOW_CLOSED | (flags & CT_REPORTED ? 0 : FLOW_FIRST));
}

/* Flags that an allowed packet adds to an entry with flags `before`. */
GLOBAL_FN __u32 ct_packet_flags(__u32 tcp_flags, bool reply, __u32 before)
{
	__u32 flags = reply ? CT_REPLIED : 0;

	if (!reply && before & CT_REPLIED && !(tcp_flags & TCP_SYN))
		flags |= CT_ASSURED;
	if (tcp_flags & TCP_FIN)
		flags |= reply ? CT_REPLY_FIN : CT_FIN;
	if (tcp_flags & TCP_RST)
		flags |= CT_RESET;
	return flags;
}

/*
 * Moves the entry of the packet in `policy_scratch`, which has become assured, to a slot of the assured ring, if
 * there is one. The result has no meaning.
 */
GLOBAL_FN int ct_promote(struct ct_entry *ct)
{
	struct policy_context *pc = policy_context_get();
	__u32 slot;

	if (!pc || !ct)
		return 0;
	slot = ct_alloc_slot(&pc->key, ct->flags);
	if (slot != CT_NO_SLOT)
		ct->slot = slot;
	return 0;
}

/* Records an allowed packet. */
static __always_inline void ct_update(struct __sk_buff *skb, struct policy_context *pc, struct ct_entry *ct, bool reply,
				      __u64 now)
{
	__u32 added = ct_packet_flags(pc->transport.flags, reply, ct->flags) & ~ct->flags, old;

	if (!(pc->enforce & ENFORCE_UNCOUNTED))
		ct_count(ct, reply, 1, skb->len);
	if (now - ct->seen >= NSEC_PER_SEC)
		ct->seen = now;
	if (likely(!added))
		return;
	old = __sync_fetch_and_or(&ct->flags, added);
	if (added & ~old & CT_REPLIED && old & CT_REPORTED)
		ct_report(skb, pc, ct, FLOW_REPLIED);
	if (ct_is_closed(old | added))
		ct_report_close(skb, pc, ct);
	else if (added & ~old & CT_ASSURED && ct->slot != CT_NO_SLOT)
		ct_promote(ct);
}

/*
 * Looks up an entry that is not in its slot of `ct_new`. A SYN skips `conntrack`, which is rarely in the CPU
 * caches, unless an entry of this slot with an unreplied SYN may have been moved there.
 */
static __always_inline struct ct_entry *ct_find_flushed(const struct policy_context *pc,
							const struct ct_new_entry *slot)
{
	if (transport_is_syn(&pc->transport) && slot && slot->unreplied_until < ct_new_clock(ktime_coarse()))
		return 0;
	return bpf_map_lookup_elem(&conntrack, &pc->key);
}

/* A packet of a known entry. POLICY_NEW if it starts a new connection in its place. */
static __always_inline int ct_continue(struct __sk_buff *skb, struct policy_context *pc, struct ct_entry *ct)
{
	bool reply = ct_direction(ct, pc->reversed);
	int reason;

	if (transport_is_syn(&pc->transport) && (reply || ct_is_closed(ct->flags) || ct->flags & CT_REVOKED))
		return POLICY_NEW;
	reason = ct_reevaluate(skb, pc, ct, reply);
	if (reason == POLICY_ALLOWED)
		ct_update(skb, pc, ct, reply, ktime_coarse());
	return reason;
}

/* An ICMP error: allowed if the quoted packet's connection is. It creates no entry. */
static __always_inline int ct_icmp_error(struct __sk_buff *skb, struct policy_context *pc, const struct ct_entry *ct)
{
	__u32 directions;
	bool reply;

	if (!ct)
		return policy_verdict_error(skb, pc);
	reply = ct_direction(ct, pc->reversed);
	directions = policy_directions(pc->enforce, reply);
	if (ct->revision == pc->revision)
		directions &= ~ct->flags;
	return directions ? policy_verdict(skb, directions, reply) : POLICY_ALLOWED;
}
