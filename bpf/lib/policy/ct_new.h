/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * New connections start in a direct-mapped array, `ct_new`, indexed by a hash of the 5-tuple. A collision moves
 * the old entry to `conntrack`, unless it is closed, as most are. So short connections stay in little memory,
 * which the CPU caches hold. An entry is in one of both maps; it never moves back.
 *
 * Flows report an entry when it closes, when it moves, or when the agent runs report_flows: most connections are
 * reported once.
 *
 * Another CPU may replace an entry while it is in use, as in an LRU map. The user must compare the key again
 * before it relies on what it has read.
 */
#pragma once

#include "lib/flow/events.h"
#include "lib/net/hash.h"
#include "lib/policy/ct_key.h"
#include "lib/policy/ct_slots.h"

/* The protocol of the key with its padding, written as one word. 0: the slot is empty. */
static __always_inline __u32 *ct_new_protocol(struct ct_new_entry *slot)
{
	_Static_assert(sizeof(slot->key) - __builtin_offsetof(struct tuple, protocol) == sizeof(__u32),
		       "the protocol and its padding are a word");
	return (__u32 *)&slot->key.protocol;
}

static __always_inline __u32 ct_new_index(const struct tuple *key)
{
	const __u32 *source = key->source.word, *destination = key->destination.word;
	__u32 hash = source[2] * HASH_MULTIPLIER ^ source[3];

	hash = hash * HASH_MULTIPLIER ^ destination[2];
	hash = hash * HASH_MULTIPLIER ^ destination[3];
	hash = hash * HASH_MULTIPLIER ^ ((__u32)key->source_port << 16 | key->destination_port);
	_Static_assert(CT_NEW_MAX == 1 << 10, "the index has 10 bits");
	return hash * HASH_MULTIPLIER >> 22;
}

/* The slot of an index. Not NULL while anything is tracked. */
static __always_inline struct ct_new_entry *ct_new_slot(const __u32 *index)
{
	return bpf_map_lookup_elem(&ct_new, index);
}

static __always_inline bool ct_new_is(const struct ct_new_entry *slot, const struct tuple *key)
{
	const struct tuple *is = &slot->key;

	return *(const volatile __u8 *)&is->protocol == key->protocol && is->source_port == key->source_port &&
	       is->destination_port == key->destination_port && address_equals(&is->source, &key->source) &&
	       address_equals(&is->destination, &key->destination);
}

/* An entry of `ct_new`, or NULL. */
static __always_inline struct ct_new_entry *ct_new_find(const struct tuple *key)
{
	__u32 index = ct_new_index(key);
	struct ct_new_entry *slot = ct_new_slot(&index);

	return slot && ct_new_is(slot, key) ? slot : 0;
}

/* The time in units of ct_new_entry.unreplied_until: 2^30 ns of CLOCK_MONOTONIC. */
static __always_inline __u32 ct_new_clock(__u64 now)
{
	return now >> 30;
}

static __always_inline void ct_new_unlock(struct ct_new_entry *slot)
{
	*(volatile __u32 *)&slot->lock = 0;
}

/*
 * Moves an entry to `conntrack`. It is inserted there before it is removed here. A SYN is retransmitted until it
 * is replied to, for at most TIMEOUT_UNREPLIED.
 */
static __always_inline void ct_new_flush(struct ct_new_entry *slot)
{
	if (!(slot->entry.flags & CT_REPLIED))
		slot->unreplied_until = ct_new_clock(slot->entry.seen) + TIMEOUT_UNREPLIED;
	ct_store(&slot->key, &slot->entry);
}

/*
 * Inserts an entry in the slot of this index, replacing one with the same key. Returns false if another CPU has
 * locked the slot; it does not wait. The key has no protocol meanwhile, so readers do not match it.
 */
static __always_inline bool ct_new_insert(const __u32 *index, const struct tuple *key, const struct ct_entry *ct)
{
	struct ct_new_entry *slot = ct_new_slot(index);
	__u32 *protocol;

	if (!slot || __sync_lock_test_and_set(&slot->lock, 1))
		return false;
	protocol = ct_new_protocol(slot);
	if (*protocol && !ct_is_closed(slot->entry.flags)) {
		flow_ct_report(&slot->key, &slot->entry);
		if (!ct_new_is(slot, key))
			ct_new_flush(slot);
	}
	*(volatile __u32 *)protocol = 0;
	slot->entry = *ct;
	slot->key.source = key->source;
	slot->key.destination = key->destination;
	slot->key.source_port = key->source_port;
	slot->key.destination_port = key->destination_port;
	__sync_lock_test_and_set(protocol, key->protocol);
	ct_new_unlock(slot);
	return true;
}

/* An entry in either map. */
static __always_inline struct ct_entry *ct_find(const struct tuple *key)
{
	struct ct_new_entry *slot = ct_new_find(key);

	return slot ? &slot->entry : bpf_map_lookup_elem(&conntrack, key);
}
