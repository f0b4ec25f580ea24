/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose session it is: each one in `conntrack` has a slot of a pod here, and a pod that has no slot left evicts one of its own. So
 * nobody's packets, however many, make the datapath forget a session of another pod.
 *
 * Charged is who opened the session, if that is a pod here: its device has shown that it is. Else the pod that it was opened to is, in
 * rings of their own, so that what comes from outside evicts nothing that the pod has opened.
 */
#pragma once

#include <bpf/bpf_helpers.h>
#include "lib/policy/ct_key.h"

/* How many slots a pod has at least, and before the agent has said it. */
#define CT_SHARE_MIN 16

/* How many slots are looked at for one whose session is gone, or the least used. */
#define CT_SLOT_PROBES 4

/* In how many parts a ring of what came from outside is, each for the clients with one hash, of which these are the upper bits. */
#define CT_RING_PARTS 8
#define CT_RING_PART_SHIFT 29
_Static_assert(1ULL << 32 >> CT_RING_PART_SHIFT == CT_RING_PARTS, "a hash has as many upper bits as there are parts");

/* Which ring of its pod a session belongs to. */
static __always_inline __u32 ct_ring(__u32 flags)
{
	return (flags & CT_ASSURED ? CT_RING_ASSURED : 0) | (flags & CT_INBOUND ? CT_RING_INBOUND : 0);
}

/* The pod that a session is charged to. */
static __always_inline const struct address *ct_owner(const struct tuple *key, __u32 flags)
{
	return !(flags & CT_REVERSED) != !(flags & CT_INBOUND) ? &key->destination : &key->source;
}

/* How many slots each ring of a pod has. */
static __always_inline __u32 ct_ring_size(void)
{
	__u32 zero = 0;
	const __u32 *share = bpf_map_lookup_elem(&ct_share_size, &zero);
	__u32 size = share && *share >= CT_SHARE_MIN ? *share : CT_SHARE_MIN;

	return size / CT_RING_MAX;
}

/* Whether a slot's session, if there is one, is one that has it. */
static __always_inline bool ct_has_slot(const struct tuple *key, const struct ct_entry *ct, const struct ct_slot *at)
{
	return ct && ct->slot == at->slot && address_equals(ct_owner(key, ct->flags), &at->pod);
}

/*
 * Finds the slot of a ring that the session with this key gets, and evicts the session that has it. What only begins goes in the order in which
 * it began. Of what lasts goes what is over, if it is among a few, else which of a few had no packet for the longest time. What came from
 * outside evicts in its client's part of the ring only: a client that has begun however many sessions leaves the others what is in other parts.
 */
static __always_inline void ct_evict_slot(struct ct_slot *at, const struct tuple *of, __u32 ring, __u32 next,
					  __u32 size)
{
	__u32 part = 0, part_size = size, best, first = ring << CT_RING_SHIFT;
	struct ct_entry *ct;
	struct tuple *key;
	__u64 seen = ~0ULL;

	if (ring & CT_RING_INBOUND && size >= CT_RING_PARTS) {
		part_size = size / CT_RING_PARTS;
		/* The other end is the pod that the ring is of. */
		part = ((address_hash(&of->source) ^ address_hash(&of->destination)) * HASH_MULTIPLIER >>
			CT_RING_PART_SHIFT) *
		       part_size;
	}
	best = first | (ring & CT_RING_ASSURED ? part + next % part_size : next % size);
	for (__u32 i = 0; i < 2 * CT_SLOT_PROBES && ring & CT_RING_ASSURED; i++) {
		at->slot = first |
			   (i < CT_SLOT_PROBES ? (next + i) % size : part + (next + i - CT_SLOT_PROBES) % part_size);
		key = bpf_map_lookup_elem(&ct_slots, at);
		ct = key ? bpf_map_lookup_elem(&conntrack, key) : 0;
		if (!key || !ct_has_slot(key, ct, at) || ct_is_closed(ct->flags)) {
			best = at->slot;
			break;
		}
		if (i >= CT_SLOT_PROBES && ct->seen < seen) {
			seen = ct->seen;
			best = at->slot;
		}
	}
	at->slot = best;
	key = bpf_map_lookup_elem(&ct_slots, at);
	ct = key ? bpf_map_lookup_elem(&conntrack, key) : 0;
	if (key && ct_has_slot(key, ct, at))
		bpf_map_delete_elem(&conntrack, key);
}

/* Gives a session a slot of its pod; CT_NO_SLOT if there is no room for the pod or the slot. */
static __always_inline __u32 ct_alloc_slot(const struct tuple *key, __u32 flags)
{
	__u32 ring = ct_ring(flags);
	struct ct_slot at = {.pod = *ct_owner(key, flags)};
	struct ct_share *share = bpf_map_lookup_elem(&ct_shares, &at.pod);

	if (unlikely(!share)) {
		/* Where its rings begin does not matter: any 16 bytes will do, and the stack has no room for others. */
		_Static_assert(sizeof(*share) == sizeof(at.pod), "the address serves as a share");
		bpf_map_update_elem(&ct_shares, &at.pod, &at.pod, BPF_NOEXIST);
		share = bpf_map_lookup_elem(&ct_shares, &at.pod);
		if (!share)
			return CT_NO_SLOT;
	}
	ct_evict_slot(&at, key, ring, __sync_fetch_and_add(&share->next[ring], 1), ct_ring_size());
	return bpf_map_update_elem(&ct_slots, &at, key, BPF_ANY) ? CT_NO_SLOT : at.slot;
}

/* Keeps a session in `conntrack`, over the one with the same key if it is there. The result means nothing. */
static __noinline int ct_store(const struct tuple *key, struct ct_entry *ct)
{
	ct->slot = ct_alloc_slot(key, ct->flags);
	if (ct->slot != CT_NO_SLOT)
		bpf_map_update_elem(&conntrack, key, ct, BPF_ANY);
	return 0;
}

/* Gives a session that has begun to last a slot among those that do; it keeps the one that it has if there is none. The result means nothing. */
static __noinline int ct_promote(const struct tuple *key, struct ct_entry *ct)
{
	__u32 slot = ct_alloc_slot(key, ct->flags);

	if (slot != CT_NO_SLOT)
		ct->slot = slot;
	return 0;
}
