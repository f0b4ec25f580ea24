/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flow events for the agent: the ring buffer, rate limits and conntrack events. Drops are in drops.h. Events never
 * change a verdict; lost events are counted. Without --flows the verifier prunes all of it.
 */
#pragma once

#include "config.h"
#include "lib/fwd/sender.h"
#include "lib/net/hash.h"
#include "lib/net/transport.h"
#include "lib/policy/ct_slots.h"
#include "lib/policy/policy.h"

/* One second: minimum interval of events for similar drops, and the unit of --flows-rate. */
#define FLOW_INTERVAL 1000000000ULL

/* Submitting wakes the agent when this much more of `flows` is filled; else the agent polls. */
#define FLOW_WAKE (FLOWS_SIZE / 4)

/* Bytes of an event in the ring buffer, with its header (BPF_RINGBUF_HDR_SZ). */
#define FLOW_RECORD (sizeof(struct flow_event) + 8)

/* Where an event comes from. */
struct flow_origin {
	__u32 ifindex;	/* device of the packet that caused it */
	__u8 program;	/* enum program */
	__u8 tcp_flags; /* enum transport_flag of the packet */
	__u8 padding[2];
};

/* Flag beside enum flow_kind: the first event of the entry. */
#define FLOW_FIRST 0x100U

/* Counts lost events. */
static __always_inline void flow_count_lost(enum flow_kind kind, enum flow_loss why, __u64 events)
{
	__u32 index = kind * FLOW_LOSS_MAX + why;
	__u64 *count = bpf_map_lookup_elem(&flow_lost, &index);

	if (count)
		__sync_fetch_and_add(count, events); /* atomic: a packet may interrupt programs of the agent */
}

/*
 * Each sender may use 1/FLOW_SHARES of a CPU's --flows-rate, between 1 and FLOW_SHARE_MAX a second, so one sender
 * cannot fill the buffer.
 */
#define FLOW_SHARES 32
#define FLOW_SHARE_MAX 32

/* Events a second of a sender's share. */
static __always_inline __u32 flow_share_rate(void)
{
	__u32 share = config_flows_rate / FLOW_SHARES;

	if (share > FLOW_SHARE_MAX)
		return FLOW_SHARE_MAX;
	return share ? share : 1;
}

/*
 * Token bucket: whether an event fits a rate. It may run one second ahead of the clock, so bursts are sampled
 * evenly.
 */
static __always_inline bool flow_ratelimit_use(__u64 *used, __u64 now, __u32 rate)
{
	if (*used < now)
		*used = now;
	if (*used - now >= FLOW_INTERVAL)
		return false;
	*used += FLOW_INTERVAL / rate;
	return true;
}

/* Whether a sender may report within its own share. */
static __always_inline bool flow_share_allows(const struct sender *who, __u64 now)
{
	__u64 *used = bpf_map_lookup_elem(&flow_shares, who);
	__u64 first = now;

	if (used)
		return flow_ratelimit_use(used, now, flow_share_rate());
	flow_ratelimit_use(&first, now, flow_share_rate());
	return !bpf_map_update_elem(&flow_shares, who, &first, BPF_ANY);
}

/* Whether the last quarter of the buffer, which is reserved for shares of senders, has begun. */
static __always_inline bool flow_is_crowded(void)
{
	return bpf_ringbuf_query(&flows, BPF_RB_AVAIL_DATA) >= FLOWS_SIZE / 4 * 3;
}

/* Whether an event of an entry fits; its owner is the sender. */
static __always_inline bool flow_ct_fits(const struct tuple *key, const struct ct_entry *ct)
{
	const struct address *owner;
	struct sender who;

	if (likely(!flow_is_crowded()))
		return true;
	owner = ct_owner(key, ct->flags);
	/* The upper bit separates pods from devices and external senders. */
	who.device = 1U << 31 | (owner->word[0] * HASH_MULTIPLIER ^ owner->word[1] * HASH_MULTIPLIER ^ owner->word[2]);
	who.external = owner->word[3];
	return flow_share_allows(&who, bpf_ktime_get_ns());
}

/* Reserves an event in the ring buffer. NULL, and counted, if that is full. */
static __always_inline struct flow_event *flow_reserve(enum flow_kind kind)
{
	struct flow_event *e = bpf_ringbuf_reserve(&flows, sizeof(*e), 0);

	if (!e) {
		flow_count_lost(kind, FLOW_LOSS_FULL, 1);
		return 0;
	}
	e->time = bpf_ktime_get_ns();
	e->kind = kind;
	return e;
}

static __always_inline void flow_submit(struct flow_event *e)
{
	__u64 unread = bpf_ringbuf_query(&flows, BPF_RB_AVAIL_DATA);
	bool wake = unread >= FLOW_WAKE && unread % FLOW_WAKE < FLOW_RECORD;

	bpf_ringbuf_submit(e, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

static __always_inline __u32 flow_mix(__u32 hash, __u32 word)
{
	hash = (hash ^ word) * HASH_MULTIPLIER;
	return hash ^ hash >> 15;
}

/*
 * Whether an entry is sampled (--flows-sample). By ports and creation time, which do not change and which the
 * agent knows: an entry reports all of its events or none. Samples of internal/datapath does the same.
 */
static __always_inline bool flow_sampled(const struct tuple *key, const struct ct_entry *ct)
{
	__u32 ports = bpf_ntohs(key->source_port) + bpf_ntohs(key->destination_port); /* the same in both directions */

	return config_flows_sample <= 1 || flow_mix(ct->created, ports) % config_flows_sample == 0;
}

/* The kind of the first event of an open connection. */
static __always_inline enum flow_kind flow_first_kind(__u32 flags)
{
	return flags & CT_REPLIED ? FLOW_REPLIED : FLOW_NEW;
}

/*
 * Fills an event of an entry, except time and kind. The event's tuple has the initiator as source. `o` is NULL if
 * no packet caused it.
 */
static __always_inline void flow_fill(struct flow_event *e, const struct tuple *key, const struct ct_entry *ct,
				      const struct flow_origin *o, bool first)
{
	bool reversed = ct->flags & CT_REVERSED;

	e->created = ct->created;
	e->tuple = *key;
	if (reversed) {
		e->tuple.source = key->destination;
		e->tuple.destination = key->source;
		e->tuple.source_port = key->destination_port;
		e->tuple.destination_port = key->source_port;
	}
	e->packets[0] = ct->packets[0];
	e->packets[1] = ct->packets[1];
	e->bytes[0] = ct->bytes[0];
	e->bytes[1] = ct->bytes[1];
	e->ifindex = o ? o->ifindex : 0;
	e->source = ct->source;
	e->destination = ct->destination;
	e->ingress = ct->ingress;
	e->egress = ct->egress;
	e->reason = DROP_NONE;
	e->program = o ? o->program : PROGRAM_MAX;
	e->tcp_flags = o ? o->tcp_flags : 0;
	e->first = first;
	__builtin_memset(e->padding, 0, sizeof(e->padding));
}

/*
 * Reports a change of an entry. `kind` is an enum flow_kind, with or without FLOW_FIRST. The result has no
 * meaning.
 */
GLOBAL_FN int flow_ct_event(const struct tuple *key, const struct ct_entry *ct, const struct flow_origin *o, __u32 kind)
{
	struct flow_event *e;

	if (config_flows < FLOWS_POLICY || !key || !ct || !flow_sampled(key, ct))
		return 0;
	if (!flow_ct_fits(key, ct)) {
		flow_count_lost(kind & 0xff, FLOW_LOSS_FULL, 1);
		return 0;
	}
	e = flow_reserve(kind & 0xff);
	if (!e)
		return 0;
	flow_fill(e, key, ct, o, kind & FLOW_FIRST);
	flow_submit(e);
	return 0;
}

/* Flags of entries that have been reported. */
#define FLOW_REPORTED (CT_REPORTED | CT_REPORTED_END | CT_REVOKED)

/*
 * Reports an entry that has not been reported, without a packet. The event is reserved before CT_REPORTED is set,
 * so later events of the entry come after it. The result has no meaning.
 */
GLOBAL_FN int flow_ct_report(const struct tuple *key, struct ct_entry *ct)
{
	struct flow_event *e = 0;
	enum flow_kind kind;
	bool sampled;
	__u32 flags;

	if (config_flows < FLOWS_POLICY || !key || !ct || *(volatile __u32 *)&ct->flags & FLOW_REPORTED)
		return 0;
	sampled = flow_sampled(key, ct);
	if (sampled && flow_ct_fits(key, ct))
		e = bpf_ringbuf_reserve(&flows, sizeof(*e), 0);
	flags = __sync_fetch_and_or(&ct->flags, CT_REPORTED);
	kind = flow_first_kind(flags);
	if (!e) {
		if (sampled && !(flags & FLOW_REPORTED))
			flow_count_lost(kind, FLOW_LOSS_FULL, 1);
		return 0;
	}
	if (flags & FLOW_REPORTED) { /* a packet has reported it first */
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		return 0;
	}
	e->time = kind == FLOW_NEW ? ct->created : bpf_ktime_get_ns();
	e->kind = kind;
	flow_fill(e, key, ct, 0, true);
	flow_submit(e);
	return 0;
}
