/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Consistent hashing (Maglev, NSDI 2016, 3.4): every node picks the same backend for a connection. */
#pragma once

#include "lib/net/address.h"
#include "lib/net/verdict.h"

/* One round of MurmurHash3 (x86, 32 bits). */
static __always_inline __u32 service_hash_word(__u32 hash, __u32 word)
{
	word *= 0xcc9e2d51;
	word = word << 15 | word >> 17;
	hash ^= word * 0x1b873593;
	hash = hash << 13 | hash >> 19;
	return hash * 5 + 0xe6546b64;
}

/*
 * The same on all nodes for packets of one connection. The destination address is left out: nodes forward packets
 * to their own addresses for each other. It includes the source port also with session affinity: after its timeout
 * a client may get another backend, as Kubernetes' conformance tests expect.
 */
static __always_inline __u32 service_hash(const struct tuple *t)
{
	__u32 hash = 0;

	for (int i = 0; i < 4; i++)
		hash = service_hash_word(hash, t->source.word[i]);
	hash = service_hash_word(hash, (__u32)t->source_port << 16 | t->destination_port);
	hash = service_hash_word(hash, t->protocol);
	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35;
	return hash ^ hash >> 16;
}

/*
 * The backend's index by consistent hashing. While a set is being replaced its table may be missing; then any
 * index will do.
 */
static __always_inline __u32 service_maglev(const struct backend_set *set, __u32 hash)
{
	__u32 position = hash % set->maglev_size;
	struct maglev_key key = {.table = set->maglev};
	const struct maglev_block *block;
	__u32 offset;

	if (set->maglev_width == 2)
		position *= 2;
	key.block = position / MAGLEV_BLOCK;
	block = bpf_map_lookup_elem(&maglev, &key);
	if (!block)
		return hash % set->count;
	offset = position % MAGLEV_BLOCK;
	barrier_var(offset); /* the compiler knows the range, the verifier needs the check */
	if (set->maglev_width != 2)
		return offset < MAGLEV_BLOCK ? block->entries[offset] : 0;
	if (offset > MAGLEV_BLOCK - 2)
		return 0;
	return block->entries[offset] | (__u32)block->entries[offset + 1] << 8;
}
