/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose session it is: each one in `sessions` has a slot of a pod here, and a pod that has no slot left evicts one of its own. So
 * nobody's packets, however many, make the datapath forget a session of another pod.
 *
 * Charged is who opened the session, if that is a pod here: its device has shown that it is. Else the pod that it was opened to is, in
 * rings of their own, so that what comes from outside evicts nothing that the pod has opened.
 */
#pragma once

#include <bpf/bpf_helpers.h>
#include "session_key.h"

/* How many slots a pod has at least, and before the agent has said it. */
#define SESSION_SHARE_LEAST 16

/* How many slots are looked at for one whose session is gone, or the least used. */
#define SESSION_LOOKS 4

/* In how many parts a ring of what came from outside is, each for the clients with one hash, of which these are the upper bits. */
#define SESSION_PARTS 8
#define SESSION_PART_SHIFT 29
_Static_assert(1ULL << 32 >> SESSION_PART_SHIFT == SESSION_PARTS, "a hash has as many upper bits as there are parts");

/* Which ring of its pod a session belongs to. */
static __always_inline __u32 session_ring(__u32 flags)
{
	return (flags & SESSION_LASTING ? SESSION_RING_LASTING : 0) |
	       (flags & SESSION_INBOUND ? SESSION_RING_INBOUND : 0);
}

/* The pod that a session is charged to. */
static __always_inline const struct address *session_payer(const struct tuple *key, __u32 flags)
{
	return !(flags & SESSION_TURNED) != !(flags & SESSION_INBOUND) ? &key->destination : &key->source;
}

/* How many slots each ring of a pod has. */
static __always_inline __u32 session_ring_size(void)
{
	__u32 zero = 0;
	const __u32 *share = bpf_map_lookup_elem(&session_share_size, &zero);
	__u32 size = share && *share >= SESSION_SHARE_LEAST ? *share : SESSION_SHARE_LEAST;

	return size / SESSION_RING_MAX;
}

/* Whether a slot's session, if there is one, is one that has it. */
static __always_inline bool session_has_slot(const struct tuple *key, const struct session *s,
					     const struct session_slot *at)
{
	return s && s->slot == at->slot && address_equals(session_payer(key, s->flags), &at->pod);
}

/*
 * Finds the slot of a ring that the session with this key gets, and evicts the session that has it. What only begins goes in the order in which
 * it began. Of what lasts goes what is over, if it is among a few, else which of a few had no packet for the longest time. What came from
 * outside evicts in its client's part of the ring only: a client that has begun however many sessions leaves the others what is in other parts.
 */
static __always_inline void session_clear_slot(struct session_slot *at, const struct tuple *of, __u32 ring, __u32 next,
					       __u32 size)
{
	__u32 part = 0, part_size = size, best, first = ring << SESSION_RING_SHIFT;
	struct session *s;
	struct tuple *key;
	__u64 seen = ~0ULL;

	if (ring & SESSION_RING_INBOUND && size >= SESSION_PARTS) {
		part_size = size / SESSION_PARTS;
		/* The other end is the pod that the ring is of. */
		part = ((address_hash(&of->source) ^ address_hash(&of->destination)) * HASH_MULTIPLIER >>
			SESSION_PART_SHIFT) *
		       part_size;
	}
	best = first | (ring & SESSION_RING_LASTING ? part + next % part_size : next % size);
	for (__u32 i = 0; i < 2 * SESSION_LOOKS && ring & SESSION_RING_LASTING; i++) {
		at->slot =
			first | (i < SESSION_LOOKS ? (next + i) % size : part + (next + i - SESSION_LOOKS) % part_size);
		key = bpf_map_lookup_elem(&session_slots, at);
		s = key ? bpf_map_lookup_elem(&sessions, key) : 0;
		if (!key || !session_has_slot(key, s, at) || session_is_over(s->flags)) {
			best = at->slot;
			break;
		}
		if (i >= SESSION_LOOKS && s->seen < seen) {
			seen = s->seen;
			best = at->slot;
		}
	}
	at->slot = best;
	key = bpf_map_lookup_elem(&session_slots, at);
	s = key ? bpf_map_lookup_elem(&sessions, key) : 0;
	if (key && session_has_slot(key, s, at))
		bpf_map_delete_elem(&sessions, key);
}

/* Gives a session a slot of its pod; SESSION_NO_SLOT if there is no room for the pod or the slot. */
static __always_inline __u32 session_take_slot(const struct tuple *key, __u32 flags)
{
	__u32 ring = session_ring(flags);
	struct session_slot at = {.pod = *session_payer(key, flags)};
	struct session_share *share = bpf_map_lookup_elem(&session_shares, &at.pod);

	if (unlikely(!share)) {
		/* Where its rings begin does not matter: any 16 bytes will do, and the stack has no room for others. */
		_Static_assert(sizeof(*share) == sizeof(at.pod), "the address serves as a share");
		bpf_map_update_elem(&session_shares, &at.pod, &at.pod, BPF_NOEXIST);
		share = bpf_map_lookup_elem(&session_shares, &at.pod);
		if (!share)
			return SESSION_NO_SLOT;
	}
	session_clear_slot(&at, key, ring, __sync_fetch_and_add(&share->next[ring], 1), session_ring_size());
	return bpf_map_update_elem(&session_slots, &at, key, BPF_ANY) ? SESSION_NO_SLOT : at.slot;
}

/* Keeps a session in `sessions`, over the one with the same key if it is there. The result means nothing. */
static __noinline int session_store(const struct tuple *key, struct session *s)
{
	s->slot = session_take_slot(key, s->flags);
	if (s->slot != SESSION_NO_SLOT)
		bpf_map_update_elem(&sessions, key, s, BPF_ANY);
	return 0;
}

/* Gives a session that has begun to last a slot among those that do; it keeps the one that it has if there is none. The result means nothing. */
static __noinline int session_promote(const struct tuple *key, struct session *s)
{
	__u32 slot = session_take_slot(key, s->flags);

	if (slot != SESSION_NO_SLOT)
		s->slot = slot;
	return 0;
}
