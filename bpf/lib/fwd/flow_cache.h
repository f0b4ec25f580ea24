/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow cache: results of endpoint, route, NAT and policy lookups for packets between two addresses. */
#pragma once

#include "lib/net/hash.h"
#include "lib/net/packet.h"
#include "lib/policy/verdict_cache.h"

/*
 * The sum of two counters that only grow, so every change of the tables gives a new number. 0 until the agent has
 * filled the tables: then nothing is cached.
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

/* Whose slots: each has its own for packets between two addresses. */
enum flow_cache_user {
	CACHED_INGRESS = 0,
	/* Packets that the kernel stack sends. A forwarded packet has an entry from its ingress device too. */
	CACHED_EGRESS = FLOW_CACHE_MAX / 4,
	/*
	 * XDP. tc caches the packet that XDP passes to it about once a second. In the same slot it would evict the
	 * entry of XDP, which would then pass the next packet as well, forever.
	 */
	CACHED_XDP = FLOW_CACHE_MAX / 2,
	/* What macvlan pods send. A packet that the host end receives has an entry from there too. */
	CACHED_MACVLAN = FLOW_CACHE_MAX / 4 * 3,
};

/* The slot for packets between two addresses on this CPU. Programs on one CPU do not interrupt each other. */
static __always_inline struct flow_cache_entry *
flow_cache_slot(const struct address *source, const struct address *destination, enum flow_cache_user user)
{
	/* Addresses of one prefix differ in the last word. */
	__u32 hash = (source->word[3] * HASH_MULTIPLIER ^ destination->word[3]) * HASH_MULTIPLIER;
	__u32 index = hash >> 24 ^ user;

	_Static_assert(FLOW_CACHE_MAX == 1 << 8, "the index has 8 bits");
	return bpf_map_lookup_elem(&flow_cache, &index);
}

/*
 * The device and the kind of packets that an entry is valid for. An entry must not apply to packets that others
 * can send.
 */
enum flow_cache_scope {
	SCOPE_INGRESS = 0,
	SCOPE_XDP = 1 << 29, /* translated, before there is an skb */
	SCOPE_EGRESS = 1 << 30,
	SCOPE_TRANSLATED = 1U << 31, /* addresses after NAT */
};

/* Whether an entry matches and is current. `where` is a device with an enum flow_cache_scope. */
static __always_inline bool flow_cache_hit(const struct flow_cache_entry *fc, const struct address *source,
					   const struct address *destination, __u32 where, __u32 now)
{
	return fc->generation == now && now && fc->scope == where && address_equals(&fc->destination, destination) &&
	       address_equals(&fc->source, source);
}

/*
 * Stores an entry. The caller read `now` before the tables, so an entry from tables that changed meanwhile is
 * outdated at once. The verdict of the evicted entry ends.
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
