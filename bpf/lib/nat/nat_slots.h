/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Each owner's share of the tables of translated connections. A connection needs a slot: there are as many as the table has capacity for.
 * A new connection looks at NAT_SAMPLES slots, from a random one on, and takes one that is free or whose connection has expired. So the
 * tables need no agent. Where all are in use, an entry of an owner that holds more is evicted, else one of its own owner, or the new one is
 * dropped: no owner can take what another one needs, as long as it holds more itself.
 *
 * Owners are the pods of this node, each by its device, and clients from outside, each by its address (IPv6: by its /64, if it is not of the
 * cluster). Against pods, all clients from outside count as one.
 */
#pragma once

#include "lib/nat/nat_table.h"
#include "lib/net/hash.h"
#include "lib/fwd/route.h"

/* Set in the id of an owner that is outside of this node. The id of a pod is the index of its device. */
#define NAT_OWNER_EXTERNAL (1U << 31)

/* How many slots are looked at. Where a tenth of them is free, one of these is with a probability of 4 in 5. */
#define NAT_SAMPLES 16

/* An owner of no more connections than this loses no TCP connection and no stream. */
#define NAT_OWNER_SMALL 64

/* The owner id of a client from outside. */
GLOBAL_FN __u32 nat_owner_external(const struct address *client)
{
	__u32 hash;

	if (!client)
		return NAT_OWNER_EXTERNAL;
	if (address_is_ipv4(client))
		hash = client->word[3];
	else if (route_kind_of(client) != ROUTE_UNKNOWN)
		hash = address_hash(client);
	else
		hash = client->word[0] * HASH_MULTIPLIER ^ client->word[1];
	return hash * HASH_MULTIPLIER | NAT_OWNER_EXTERNAL;
}

/* The index of an owner in `nat_owners`; two that share one count as one owner. */
static __always_inline __u32 nat_owner_index(__u32 owner)
{
	return owner & NAT_OWNER_EXTERNAL ? NAT_OWNERS + (owner >> 16 & (NAT_OWNERS - 1)) : owner & (NAT_OWNERS - 1);
}

/* How many slots of a table an element of `nat_owners` has; NULL cannot be: every index has its element. */
static __always_inline __u32 *nat_held(__u32 index, bool pending)
{
	struct nat_owner *o = bpf_map_lookup_elem(&nat_owners, &index);

	if (!o)
		return 0;
	return pending ? &o->pending : &o->established;
}

/* Adds to what an owner holds, and to what all from outside hold. */
static __always_inline void nat_charge(__u32 owner, bool pending, __u32 slots)
{
	__u32 *held = nat_held(nat_owner_index(owner), pending);

	if (held)
		__sync_fetch_and_add(held, slots);
	if (!(owner & NAT_OWNER_EXTERNAL))
		return;
	held = nat_held(NAT_OWNERS_EXTERNAL, pending);
	if (held)
		__sync_fetch_and_add(held, slots);
}

/* By how many slots an owner holds more than another one; between a pod and a client from outside, all of the latter count. */
GLOBAL_FN int nat_owner_exceeds(__u32 owner, __u32 other, bool pending)
{
	bool alike = !((owner ^ other) & NAT_OWNER_EXTERNAL);
	__u32 *a = nat_held(alike || !(owner & NAT_OWNER_EXTERNAL) ? nat_owner_index(owner) : NAT_OWNERS_EXTERNAL,
			    pending);
	__u32 *b = nat_held(alike || !(other & NAT_OWNER_EXTERNAL) ? nat_owner_index(other) : NAT_OWNERS_EXTERNAL,
			    pending);

	return a && b ? (int)(*a - *b) : 0;
}

/*
 * Whether an entry is evicted before others of its owner: nobody has replied yet, it is ended or it is no stream. One that goes on without
 * replies (DSR) stays.
 */
static __always_inline bool nat_is_brief(const struct tuple *t, const struct nat_entry *entry, bool pending)
{
	if (pending)
		return !(entry->flags & NAT_DSR) || entry->packets < 3;
	if (transport_has_flags(t->protocol))
		return entry->flags & NAT_CLOSED;
	return !(entry->flags & NAT_STREAM);
}

/* Whether and when a slot may be taken: the least first. */
enum nat_use {
	NAT_USE_FREE = 0,
	NAT_USE_MUCH, /* by a brief connection of an owner that holds much more: who floods loses before those who have a few more */
	NAT_USE_BRIEF,	/* by a brief connection of an owner that holds more */
	NAT_USE_OWN,	/* by a brief connection of the same owner */
	NAT_USE_OTHER,	/* by a half-open one from outside, and so is the new one */
	NAT_USE_STREAM, /* by a lasting connection of an owner that holds much more */
	NAT_USE_NONE,	/* may not be taken */
};

/* What an `owner` of a new connection finds in a slot. */
static __always_inline enum nat_use nat_slot_use(const struct nat_slot *s, __u32 owner, bool pending)
{
	const struct nat_entry *entry;
	bool brief;
	int more;

	if (!s->key.protocol)
		return NAT_USE_FREE;
	entry = pending ? bpf_map_lookup_elem(&nat_pending, &s->key) : bpf_map_lookup_elem(&nat, &s->key);
	if (!entry || entry->owner != s->owner || nat_expired(&s->key, entry, pending))
		return NAT_USE_FREE;
	brief = nat_is_brief(&s->key, entry, pending);
	if (s->owner == owner)
		return brief ? NAT_USE_OWN : NAT_USE_NONE;
	more = nat_owner_exceeds(s->owner, owner, pending);
	if (more > 0 && brief)
		return more > NAT_OWNER_SMALL ? NAT_USE_MUCH : NAT_USE_BRIEF;
	if (more > NAT_OWNER_SMALL)
		return NAT_USE_STREAM;
	return pending && brief && s->owner & owner & NAT_OWNER_EXTERNAL ? NAT_USE_OTHER : NAT_USE_NONE;
}

/* Gives a slot, which this CPU has taken, to a connection. What had it is evicted. */
static __always_inline void nat_slot_assign(struct nat_slot *s, const struct tuple *t, __u32 owner, bool pending)
{
	const struct nat_entry *entry;

	if (s->key.protocol) {
		entry = pending ? bpf_map_lookup_elem(&nat_pending, &s->key) : bpf_map_lookup_elem(&nat, &s->key);
		if (entry && entry->owner == s->owner)
			nat_delete(&s->key, entry);
		nat_charge(s->owner, pending, -1);
	}
	s->key = *t;
	s->owner = owner;
	nat_charge(owner, pending, 1);
}

/* No slot could be taken: DROP_NAT_TABLE_FULL. */
#define NAT_SLOT_NONE -1

/* How many slots a table has: fewer than 2^28. */
static __always_inline __u32 nat_slot_count(bool pending)
{
	return pending ? config_pending_slots : config_nat_slots;
}

static __always_inline struct nat_slot *nat_slot_at(__u32 index, bool pending)
{
	return pending ? bpf_map_lookup_elem(&pending_slots, &index) : bpf_map_lookup_elem(&nat_slots, &index);
}

/*
 * Whether an owner has so much of a table that it takes the place of one of its own before it looks for others that hold more: a longer search
 * would cost everybody's CPU time. A slot is charged until another connection takes it, so that this says nothing of a table with free slots.
 */
GLOBAL_FN int nat_owner_has_much(__u32 owner, bool pending)
{
	__u32 index = owner & NAT_OWNER_EXTERNAL ? NAT_OWNERS_EXTERNAL : nat_owner_index(owner);
	const __u32 *held = nat_held(index, pending);

	return held && *held > nat_slot_count(pending) / 8;
}

/* Takes the slot with an index if its use is at most `most`. Gives its use, NAT_USE_NONE while another CPU is at work on it. */
GLOBAL_FN int nat_slot_try(const struct tuple *t, __u32 owner, __u32 index, __u32 most, bool pending)
{
	struct nat_slot *s = nat_slot_at(index, pending);
	__u32 use;

	if (!t || !s || __sync_lock_test_and_set(&s->lock, 1))
		return NAT_USE_NONE;
	use = nat_slot_use(s, owner, pending);
	if (use <= most)
		nat_slot_assign(s, t, owner, pending);
	else
		*(volatile __u32 *)&s->lock = 0;
	return use;
}

/*
 * The index of a slot for a connection of `owner` that begins with packets of *t, in `pending_slots` or `nat_slots`, or NAT_SLOT_NONE. Nobody
 * else takes it until nat_slot_release, to be called once the connection's entries are in the table, or are not.
 */
GLOBAL_FN int nat_slot_alloc(const struct tuple *t, __u32 owner, bool pending)
{
	__u32 first = (__u64)bpf_get_prandom_u32() * nat_slot_count(pending) >> 32, index;

	if (!t)
		return NAT_SLOT_NONE;
	/* One look for each use: a loop that compares uses would have the verifier walk every order in which they can come. */
	for (int most = NAT_USE_FREE; most <= NAT_USE_STREAM; most++) {
		for (int i = 0; i < NAT_SAMPLES; i++) {
			index = (first + i) % nat_slot_count(pending);
			if (nat_slot_try(t, owner, index, most, pending) <= most)
				return index;
		}
		if (most == NAT_USE_FREE && nat_owner_has_much(owner, pending))
			most = NAT_USE_OWN - 1;
	}
	return NAT_SLOT_NONE;
}

/* Ends what nat_slot_alloc has begun. `used`: the connection is in the table; else the slot is free again. The result means nothing. */
GLOBAL_FN int nat_slot_release(int index, bool used, bool pending)
{
	struct nat_slot *s = nat_slot_at(index, pending);

	if (!s)
		return 0;
	if (!used) {
		nat_charge(s->owner, pending, -1);
		s->key.protocol = 0;
	}
	*(volatile __u32 *)&s->lock = 0;
	return 0;
}
