/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Decisions that are made once and kept for the packets that follow. */
#pragma once

#include "lib/net/hash.h"
#include "lib/net/packet.h"
#include "lib/policy/verdict_cache.h"

/*
 * The state of the tables, by both counters: neither ever goes back, so every change gives a new number. 0 before the
 * agent has filled the tables: nothing is kept then.
 */
static __always_inline __u32 flow_cache_generation(void)
{
	__u32 index = GENERATION_TABLES;
	const __u32 *tables = bpf_map_lookup_elem(&generation, &index);
	const __u32 *pods;

	index = GENERATION_PODS;
	pods = bpf_map_lookup_elem(&generation, &index);
	return tables && pods && *tables ? *tables + *pods : 0;
}

/* The index of decisions about packets between two addresses. */
static __always_inline __u32 flow_cache_index(const struct address *source, const struct address *destination)
{
	/* Neighbouring addresses differ in their last word: spread its bits (Knuth's multiplicative hash). */
	__u32 hash = (source->word[3] * HASH_MULTIPLIER ^ destination->word[3]) * HASH_MULTIPLIER;

	_Static_assert(FLOW_CACHE_MAX == 1 << 8, "the index has 8 bits");
	return hash >> 24;
}

/*
 * The place of the decision about packets that come in, between two addresses on this CPU; programs on one CPU do not
 * interrupt each other.
 */
static __always_inline struct flow_cache_entry *flow_cache_slot(const struct address *source,
								const struct address *destination)
{
	__u32 index = flow_cache_index(source, destination);

	return bpf_map_lookup_elem(&flow_cache, &index);
}

/* The same for packets that the stack sends. Another one: what it forwards has been decided about where it came in, too. */
static __always_inline struct flow_cache_entry *flow_cache_slot_egress(const struct address *source,
								       const struct address *destination)
{
	__u32 index = flow_cache_index(source, destination) ^ FLOW_CACHE_MAX / 4;

	return bpf_map_lookup_elem(&flow_cache, &index);
}

/*
 * The same for XDP. Another one: tc decides about the packet that XDP leaves to it now and then, and in the same place
 * would make XDP forget and leave it the next one as well, and so on for ever.
 */
static __always_inline struct flow_cache_entry *flow_cache_slot_xdp(const struct address *source,
								    const struct address *destination)
{
	__u32 index = flow_cache_index(source, destination) ^ FLOW_CACHE_MAX / 2;

	return bpf_map_lookup_elem(&flow_cache, &index);
}

/*
 * Which packets between two addresses a decision is about: their device, and what happens to them there. What
 * anybody may send must not meet what was decided about others.
 */
enum flow_cache_scope {
	SCOPE_INGRESS = 0,
	SCOPE_XDP = 1 << 29, /* translated, before there is an skb */
	SCOPE_EGRESS = 1 << 30,
	SCOPE_TRANSLATED = 1U << 31, /* has just been given these addresses */
};

/* Whether the decision is about such packets, and still holds. `where` is a device with an enum flow_cache_scope. */
static __always_inline bool flow_cache_hit(const struct flow_cache_entry *fc, const struct address *source,
					   const struct address *destination, __u32 where, __u32 now)
{
	return fc->generation == now && now && fc->scope == where && address_equals(&fc->destination, destination) &&
	       address_equals(&fc->source, source);
}

/*
 * Makes a decision about such packets, until the tables change. `now` was read before the tables, so a decision from
 * tables that changed meanwhile is already out of date. The permit of what was decided before ends.
 */
static __always_inline void flow_cache_store(struct flow_cache_entry *fc, const struct address *source,
					     const struct address *destination, __u32 where, __u32 now)
{
	if (policy_tracks() && fc->verdict.protocol)
		verdict_cache_end(fc);
	fc->source = *source;
	fc->destination = *destination;
	fc->scope = where;
	fc->generation = now;
}
