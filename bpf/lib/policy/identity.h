/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The identity behind an address, as far as policies distinguish addresses. */
#pragma once

#include "config.h"
#include "lib/net/address.h"
#include "lib/net/hash.h"
#include "lib/net/verdict.h"

/* The generation of `identities` and `identity_cidrs`; 0 until the agent has filled them: then nothing is cached. */
static __always_inline __u32 policy_identity_generation(void)
{
	__u32 index = GENERATION_IDENTITIES;
	const __u32 *state = bpf_map_lookup_elem(&generation, &index);

	return state ? *state : 0;
}

/* The cache slot of an address, by two words of it (IPv6). Programs on one CPU do not interrupt each other. */
static __always_inline struct identity_cache_entry *identity_cache_slot(const struct address *a)
{
	__u32 index = (a->word[2] * HASH_MULTIPLIER ^ a->word[3]) * HASH_MULTIPLIER >> 22;

	_Static_assert(IDENTITY_CACHE_MAX == 1 << 10, "the index has 10 bits");
	return bpf_map_lookup_elem(&identity_cache, &index);
}

/* Which maps to search. An ipBlock that contains a node address applies to others that use that address. */
enum identity_source {
	IDENTITY_BY_ALL = 0,
	IDENTITY_BY_CIDRS = 1,
};

/*
 * The identity of an address, cached or looked up. The generation was read before the maps, so a lookup during a
 * change is outdated at once.
 */
GLOBAL_FN __u32 policy_identity(const struct address *a, __u32 by)
{
	struct identity_cidr_key key = {.prefix_len = 128};
	const __u32 *found = 0;
	struct identity_cache_entry *i;
	__u32 now;

	if (!config_policy || !a)
		return IDENTITY_UNKNOWN;
	now = by == IDENTITY_BY_ALL ? policy_identity_generation() : 0;
	i = identity_cache_slot(a);
	if (!i)
		return IDENTITY_UNKNOWN; /* internal error */
	if (likely(now && i->generation == now && address_equals(&i->address, a)))
		return i->identity;
	key.address = *a;
	if (by == IDENTITY_BY_ALL)
		found = bpf_map_lookup_elem(&identities, &key.address);
	if (!found)
		found = bpf_map_lookup_elem(&identity_cidrs, &key);
	i->generation = now;
	i->address = key.address;
	i->identity = found ? *found : IDENTITY_UNKNOWN;
	return i->identity;
}
