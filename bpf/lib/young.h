/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a session is kept. It begins in a place that its addresses and ports choose in `young_sessions`. The next session with
 * that place moves it to `sessions`, unless it is over by then, which most are: so connections that do not last stay in little memory, which
 * the caches hold, and never enter the table of least used entries. One is in either of the two, and stays in the latter.
 *
 * Flows tell nothing of a session when it begins: most are over soon, and told of once, with all there is to tell. Those that last are told of when the agent
 * looks (settle.h) or they move.
 *
 * A place may get another session while somebody else, who has found the one before, is at work on it. As with the table of least used
 * entries, that one has to see whether it is still the same before it relies on what it has read.
 */
#pragma once

#include "flow.h"
#include "hash.h"
#include "session_key.h"
#include "session_share.h"

/* Where a tuple has its protocol, with the padding: a word that is written at once. 0: there is no session. */
static __always_inline __u32 *young_protocol(struct young_session *y)
{
	_Static_assert(sizeof(y->key) - __builtin_offsetof(struct tuple, protocol) == sizeof(__u32),
		       "the protocol and its padding are a word");
	return (__u32 *)&y->key.protocol;
}

/* The index of a session's place. */
static __always_inline __u32 young_index(const struct tuple *key)
{
	const __u32 *source = key->source.word, *destination = key->destination.word;
	__u32 hash = source[2] * HASH_MULTIPLIER ^ source[3];

	hash = hash * HASH_MULTIPLIER ^ destination[2];
	hash = hash * HASH_MULTIPLIER ^ destination[3];
	hash = hash * HASH_MULTIPLIER ^ ((__u32)key->source_port << 16 | key->destination_port);
	_Static_assert(YOUNG_SESSIONS_MAX == 1 << 10, "the index has 10 bits");
	return hash * HASH_MULTIPLIER >> 22;
}

/* The place with an index; NULL cannot be: every index has its element, unless nothing is tracked. */
static __always_inline struct young_session *young_place(const __u32 *index)
{
	return bpf_map_lookup_elem(&young_sessions, index);
}

static __always_inline bool young_is(const struct young_session *y, const struct tuple *key)
{
	const struct tuple *is = &y->key;

	return *(const volatile __u8 *)&is->protocol == key->protocol && is->source_port == key->source_port &&
	       is->destination_port == key->destination_port && address_equals(&is->source, &key->source) &&
	       address_equals(&is->destination, &key->destination);
}

/* A session that is young; NULL if it is not. */
static __always_inline struct young_session *young_find(const struct tuple *key)
{
	__u32 index = young_index(key);
	struct young_session *y = young_place(&index);

	return y && young_is(y, key) ? y : 0;
}

/* What young_session.waiting counts: CLOCK_MONOTONIC in units of 2^30 ns. */
static __always_inline __u32 young_clock(__u64 now)
{
	return now >> 30;
}

/* Gives a place back that was `taken`. */
static __always_inline void young_release(struct young_session *y)
{
	*(volatile __u32 *)&y->taken = 0;
}

/*
 * Moves a session, which has been told of, to `sessions`. It is found there before it is gone here. What opens one is sent again until it is
 * answered, or for as long as TIMEOUT_OPENING says.
 */
static __always_inline void young_move(struct young_session *y)
{
	if (!(y->session.flags & SESSION_ANSWERED))
		y->waiting = young_clock(y->session.seen) + TIMEOUT_OPENING;
	session_store(&y->key, &y->session);
}

/*
 * Begins a session in the place with this index, over the one with the same key if it is there. False if that place is being changed by somebody else: nobody
 * waits. Who compares the key meanwhile finds no protocol, at the latest when it compares again.
 */
static __always_inline bool young_begin(const __u32 *index, const struct tuple *key, const struct session *s)
{
	struct young_session *y = young_place(index);
	__u32 *protocol;

	if (!y || __sync_lock_test_and_set(&y->taken, 1))
		return false;
	protocol = young_protocol(y);
	if (*protocol && !session_is_over(y->session.flags)) {
		flow_introduce(&y->key, &y->session);
		if (!young_is(y, key))
			young_move(y);
	}
	*(volatile __u32 *)protocol = 0;
	y->session = *s;
	y->key.source = key->source;
	y->key.destination = key->destination;
	y->key.source_port = key->source_port;
	y->key.destination_port = key->destination_port;
	__sync_lock_test_and_set(protocol, key->protocol);
	young_release(y);
	return true;
}

/* A session, wherever it is kept. */
static __always_inline struct session *session_find(const struct tuple *key)
{
	struct young_session *y = young_find(key);

	return y ? &y->session : bpf_map_lookup_elem(&sessions, key);
}
