/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fair shares of `conntrack`. Every entry has a slot of a local pod, and a pod without a free slot evicts one of
 * its own entries. So no pod's traffic evicts another pod's entries.
 *
 * The owner is the initiator if that is a local pod, whose source is validated. Else it is the pod that was
 * connected to, in separate rings, so inbound connections do not evict outbound ones.
 */
#pragma once

#include <bpf/bpf_helpers.h>
#include "lib/policy/ct_key.h"

/* Minimum slots of a pod, also before the agent has set the share. */
#define CT_SHARE_MIN 16

/* Slots probed for one that is free, closed or least recently used. */
#define CT_SLOT_PROBES 4

/* Parts of an inbound ring, one for each bucket of clients; the upper bits of a hash select it. */
#define CT_RING_PARTS 8
#define CT_RING_PART_SHIFT 29
_Static_assert(1ULL << 32 >> CT_RING_PART_SHIFT == CT_RING_PARTS, "a hash has as many upper bits as there are parts");

/* The ring of an entry. */
static __always_inline __u32 ct_ring(__u32 flags)
{
	return (flags & CT_ASSURED ? CT_RING_ASSURED : 0) | (flags & CT_INBOUND ? CT_RING_INBOUND : 0);
}

/* The pod that owns an entry. */
static __always_inline const struct address *ct_owner(const struct tuple *key, __u32 flags)
{
	return !(flags & CT_REVERSED) != !(flags & CT_INBOUND) ? &key->destination : &key->source;
}

/* Slots of each ring of a pod. */
static __always_inline __u32 ct_ring_size(void)
{
	__u32 zero = 0;
	const __u32 *share = bpf_map_lookup_elem(&ct_share_size, &zero);
	__u32 size = share && *share >= CT_SHARE_MIN ? *share : CT_SHARE_MIN;

	return size / CT_RING_MAX;
}

/* Whether an entry owns the slot. */
static __always_inline bool ct_has_slot(const struct tuple *key, const struct ct_entry *ct, const struct ct_slot *at)
{
	return ct && ct->slot == at->slot && address_equals(ct_owner(key, ct->flags), &at->pod);
}

/*
 * Chooses a slot of a ring and evicts its entry. New entries are evicted in order of creation. Among assured ones
 * a closed entry goes first, else the least recently used of a few. Inbound connections evict within their
 * client's part of the ring, so one client cannot evict all others.
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
		/* The other end is the ring's owner. */
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

/* Allocates a slot; CT_NO_SLOT if a map is full. */
static __always_inline __u32 ct_alloc_slot(const struct tuple *key, __u32 flags)
{
	__u32 ring = ct_ring(flags);
	struct ct_slot at = {.pod = *ct_owner(key, flags)};
	struct ct_share *share = bpf_map_lookup_elem(&ct_shares, &at.pod);

	if (unlikely(!share)) {
		/* The start of its rings does not matter: any 16 bytes initialise a share, and the stack is full. */
		_Static_assert(sizeof(*share) == sizeof(at.pod), "the address serves as a share");
		bpf_map_update_elem(&ct_shares, &at.pod, &at.pod, BPF_NOEXIST);
		share = bpf_map_lookup_elem(&ct_shares, &at.pod);
		if (!share)
			return CT_NO_SLOT;
	}
	ct_evict_slot(&at, key, ring, __sync_fetch_and_add(&share->next[ring], 1), ct_ring_size());
	return bpf_map_update_elem(&ct_slots, &at, key, BPF_ANY) ? CT_NO_SLOT : at.slot;
}

/* Stores an entry in `conntrack`. The result has no meaning. */
static __noinline int ct_store(const struct tuple *key, struct ct_entry *ct)
{
	ct->slot = ct_alloc_slot(key, ct->flags);
	if (ct->slot != CT_NO_SLOT)
		bpf_map_update_elem(&conntrack, key, ct, BPF_ANY);
	return 0;
}
