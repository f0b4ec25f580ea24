/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is told to those who watch, as events that the agent reads: what all of them share, and those about sessions. Those about drops
 * are flow_drop.h. Nothing in either has a say in what happens to a packet, and every event that is not told is counted. Without --flows
 * the verifier removes all of it.
 */
#pragma once

#include "config.h"
#include "lib/net/hash.h"
#include "lib/policy/policy.h"
#include "lib/fwd/sender.h"
#include "lib/policy/ct_slots.h"
#include "lib/net/transport.h"

/* One second: events about the same drop are at least as far apart, and it is what --flows-rate counts by. */
#define FLOW_INTERVAL 1000000000ULL

/* Each part of `flows` that fills up wakes the agent; else it looks by itself, and no event has to pay for waking it. */
#define FLOW_WAKE (FLOWS_SIZE / 4)

/* How much of `flows` an event takes: the kernel puts 8 bytes before each (BPF_RINGBUF_HDR_SZ). */
#define FLOW_RECORD (sizeof(struct flow_event) + 8)

/* What an event about a session tells that the session itself does not say. */
struct flow_origin {
	__u32 ifindex;	/* the device where the packet is that made the event */
	__u8 program;	/* enum program */
	__u8 tcp_flags; /* enum transport_flag, of the packet */
	__u8 padding[2];
};

/* A bit beside the enum flow_kind of an event: no event has told of the session before. */
#define FLOW_FIRST 0x100U

/* Counts events that are not told. */
static __always_inline void flow_count_lost(enum flow_kind kind, enum flow_loss why, __u64 events)
{
	__u32 index = kind * FLOW_LOSS_MAX + why;
	__u64 *count = bpf_map_lookup_elem(&flow_lost, &index);

	if (count)
		__sync_fetch_and_add(count, events); /* what the agent runs may be interrupted by a packet */
}

/* One in so many of the drops that a CPU may tell of is each sender's own (--flows-rate), at least one a second and at most so many: else one filled the buffer. */
#define FLOW_SHARES 32
#define FLOW_SHARE_MAX 32

/* How many events a second that is. */
static __always_inline __u32 flow_share_rate(void)
{
	__u32 share = config_flows_rate / FLOW_SHARES;

	if (share > FLOW_SHARE_MAX)
		return FLOW_SHARE_MAX;
	return share ? share : 1;
}

/*
 * Whether there is room for another event by a rate of so many a second. Each one uses up its part of a second, which may be a second ahead of the
 * clock: after that much of a burst, what is told is a sample spread evenly.
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

/* Whether a sender may tell of something by its own share, whatever others tell. */
static __always_inline bool flow_share_allows(const struct sender *who, __u64 now)
{
	__u64 *used = bpf_map_lookup_elem(&flow_shares, who);
	__u64 first = now;

	if (used)
		return flow_ratelimit_use(used, now, flow_share_rate());
	flow_ratelimit_use(&first, now, flow_share_rate());
	return !bpf_map_update_elem(&flow_shares, who, &first, BPF_ANY);
}

/* Whether the last quarter of the buffer is begun, which is for what senders tell by their own shares. */
static __always_inline bool flow_is_crowded(void)
{
	return bpf_ringbuf_query(&flows, BPF_RB_AVAIL_DATA) >= FLOWS_SIZE / 4 * 3;
}

/* Whether an event about a session has a place: the pod that it is charged to is who tells. */
static __always_inline bool flow_ct_fits(const struct tuple *key, const struct ct_entry *ct)
{
	const struct address *owner;
	struct sender who;

	if (likely(!flow_is_crowded()))
		return true;
	owner = ct_owner(key, ct->flags);
	/* No device and nobody outside has the upper bit: these are pods. */
	who.device = 1U << 31 | (owner->word[0] * HASH_MULTIPLIER ^ owner->word[1] * HASH_MULTIPLIER ^ owner->word[2]);
	who.external = owner->word[3];
	return flow_share_allows(&who, bpf_ktime_get_ns());
}

/* A place for an event, in the ring buffer itself. NULL, and counted, where nobody has read fast enough. */
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
 * Whether a session is among those that are told of (--flows-sample). By its ports and when it was opened, which it keeps to
 * its end and the agent can see too: all of its events are told, or none. Many begin in one tick of the clock. Samples of
 * internal/datapath does the same.
 */
static __always_inline bool flow_sampled(const struct tuple *key, const struct ct_entry *ct)
{
	__u32 ports = bpf_ntohs(key->source_port) + bpf_ntohs(key->destination_port); /* the same in both directions */

	return config_flows_sample <= 1 || flow_mix(ct->created, ports) % config_flows_sample == 0;
}

/* What the first event about a session tells that is not over. */
static __always_inline enum flow_kind flow_first_kind(__u32 flags)
{
	return flags & CT_REPLIED ? FLOW_ANSWERED : FLOW_OPENED;
}

/*
 * Fills an event about a session, but for its time and kind, with the session's totals. `key` is that of `conntrack`; the event has the
 * direction of who opened it. Without `o` no packet makes the event.
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
 * Tells what a packet has changed of a session, with its totals: `what` is an enum flow_kind, with FLOW_FIRST or without. The result means
 * nothing.
 */
static __noinline int flow_ct_event(const struct tuple *key, const struct ct_entry *ct, const struct flow_origin *o,
				    __u32 what)
{
	struct flow_event *e;

	if (config_flows < FLOWS_POLICY || !flow_sampled(key, ct))
		return 0;
	if (!flow_ct_fits(key, ct)) {
		flow_count_lost(what & 0xff, FLOW_LOSS_FULL, 1);
		return 0;
	}
	e = flow_reserve(what & 0xff);
	if (!e)
		return 0;
	flow_fill(e, key, ct, o, what & FLOW_FIRST);
	flow_submit(e);
	return 0;
}

/* That a session has been told of. What an earlier version has ended, or revoked, bears no CT_REPORTED. */
#define FLOW_REPORTED (CT_REPORTED | CT_REPORTED_END | CT_REVOKED)

/*
 * Tells of a session that has not been told of, without a packet. Its event has its place in `flows` before CT_REPORTED is seen, so that
 * what packets tell of the session thereafter comes behind it. The result means nothing.
 */
static __noinline int flow_ct_report(const struct tuple *key, struct ct_entry *ct)
{
	struct flow_event *e = 0;
	enum flow_kind kind;
	bool sampled;
	__u32 flags;

	if (config_flows < FLOWS_POLICY || *(volatile __u32 *)&ct->flags & FLOW_REPORTED)
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
	if (flags & FLOW_REPORTED) { /* a packet has come first */
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		return 0;
	}
	e->time = kind == FLOW_OPENED ? ct->created : bpf_ktime_get_ns();
	e->kind = kind;
	flow_fill(e, key, ct, 0, true);
	flow_submit(e);
	return 0;
}
