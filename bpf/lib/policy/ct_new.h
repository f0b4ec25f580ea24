/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a session is kept. It begins in a place that its addresses and ports choose in `ct_new`. The next session with
 * that place moves it to `conntrack`, unless it is over by then, which most are: so connections that do not last stay in little memory, which
 * the caches hold, and never enter the table of least used entries. One is in either of the two, and stays in the latter.
 *
 * Flows tell nothing of a session when it begins: most are over soon, and told of once, with all there is to tell. Those that last are told of when the agent
 * looks (settle.h) or they move.
 *
 * A place may get another session while somebody else, who has found the one before, is at work on it. As with the table of least used
 * entries, that one has to see whether it is still the same before it relies on what it has read.
 */
#pragma once

#include "lib/flow/events.h"
#include "lib/net/hash.h"
#include "lib/policy/ct_key.h"
#include "lib/policy/ct_slots.h"

/* Where a tuple has its protocol, with the padding: a word that is written at once. 0: there is no session. */
static __always_inline __u32 *ct_new_protocol(struct ct_new_entry *slot)
{
	_Static_assert(sizeof(slot->key) - __builtin_offsetof(struct tuple, protocol) == sizeof(__u32),
		       "the protocol and its padding are a word");
	return (__u32 *)&slot->key.protocol;
}

/* The index of a session's place. */
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

/* The place with an index; NULL cannot be: every index has its element, unless nothing is tracked. */
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

/* A session that is young; NULL if it is not. */
static __always_inline struct ct_new_entry *ct_new_find(const struct tuple *key)
{
	__u32 index = ct_new_index(key);
	struct ct_new_entry *slot = ct_new_slot(&index);

	return slot && ct_new_is(slot, key) ? slot : 0;
}

/* What ct_new_entry.unreplied_until counts: CLOCK_MONOTONIC in units of 2^30 ns. */
static __always_inline __u32 ct_new_clock(__u64 now)
{
	return now >> 30;
}

/* Gives a place back that was `taken`. */
static __always_inline void ct_new_unlock(struct ct_new_entry *slot)
{
	*(volatile __u32 *)&slot->lock = 0;
}

/*
 * Moves a session, which has been told of, to `conntrack`. It is found there before it is gone here. What opens one is sent again until it is
 * answered, or for as long as TIMEOUT_UNREPLIED says.
 */
static __always_inline void ct_new_flush(struct ct_new_entry *slot)
{
	if (!(slot->entry.flags & CT_REPLIED))
		slot->unreplied_until = ct_new_clock(slot->entry.seen) + TIMEOUT_UNREPLIED;
	ct_store(&slot->key, &slot->entry);
}

/*
 * Begins a session in the place with this index, over the one with the same key if it is there. False if that place is being changed by somebody else: nobody
 * waits. Who compares the key meanwhile finds no protocol, at the latest when it compares again.
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

/* A session, wherever it is kept. */
static __always_inline struct ct_entry *ct_find(const struct tuple *key)
{
	struct ct_new_entry *slot = ct_new_find(key);

	return slot ? &slot->entry : bpf_map_lookup_elem(&conntrack, key);
}
