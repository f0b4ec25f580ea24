/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fair shares of the NAT tables. Every connection has a slot; a table has as many slots as capacity for
 * connections. A new connection probes NAT_SAMPLES slots from a random one on and takes one that is free or
 * expired, so no agent is needed to clean up. If there is none, it evicts an entry of an owner that holds more,
 * else of its own owner, else it is dropped. So no owner loses entries to one that holds more.
 *
 * Owners are local pods, by device, and external clients, by address (IPv6 outside the cluster: by /64). Against
 * pods all external clients count as one owner.
 */
#pragma once

#include "lib/fwd/route.h"
#include "lib/nat/nat_table.h"
#include "lib/net/hash.h"

/* Bit of external owner ids. The id of a pod is its device's index. */
#define NAT_OWNER_EXTERNAL (1U << 31)

/* Slots probed. With a tenth of them free, a probe succeeds with a probability of 4 in 5. */
#define NAT_SAMPLES 16

/* An owner of at most this many connections loses no TCP connection and no stream. */
#define NAT_OWNER_SMALL 64

/* The owner id of an external client. The hash is secret: a client cannot choose the others of its owner. */
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
		hash = client->word[0] * config_nat_hash ^ client->word[1];
	return hash * config_nat_hash | NAT_OWNER_EXTERNAL;
}

/* The index in `nat_owners`. Owners that share one count as one. */
static __always_inline __u32 nat_owner_index(__u32 owner)
{
	return owner & NAT_OWNER_EXTERNAL ? NAT_OWNERS + (owner >> 16 & (NAT_OWNERS - 1)) : owner & (NAT_OWNERS - 1);
}

/* The number of slots of an owner. */
static __always_inline __u32 *nat_held(__u32 index, bool pending)
{
	struct nat_owner *o = bpf_map_lookup_elem(&nat_owners, &index);

	if (!o)
		return 0;
	return pending ? &o->pending : &o->established;
}

/* Charges slots to an owner, and to all external clients together. */
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

/*
 * By how many slots an owner holds more than another. Between a pod and an external client, all external clients
 * count.
 */
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
 * Whether an entry is evicted before others of its owner: unreplied, closed, or not a stream. DSR has no replies
 * here; it is brief until its third packet.
 */
static __always_inline bool nat_is_brief(const struct tuple *t, const struct nat_entry *entry, bool pending)
{
	if (pending)
		return !(entry->flags & NAT_DSR) || entry->packets < 3;
	if (transport_has_flags(t->protocol))
		return entry->flags & NAT_CLOSED;
	return !(entry->flags & NAT_STREAM);
}

/* In which order slots are taken. */
enum nat_use {
	NAT_USE_FREE = 0,
	NAT_USE_MUCH,	/* brief, of an owner that holds much more: floods lose first */
	NAT_USE_BRIEF,	/* brief, of an owner that holds more */
	NAT_USE_OWN,	/* brief, of the same owner */
	NAT_USE_OTHER,	/* half-open and external, as the new connection */
	NAT_USE_STREAM, /* established, of an owner that holds much more */
	NAT_USE_NONE,	/* not available */
};

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

/* Assigns a locked slot to a connection and evicts its entry. */
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

/* No slot: DROP_NAT_TABLE_FULL. */
#define NAT_SLOT_NONE -1

/* Capacity of a table in slots, below 2^28. */
static __always_inline __u32 nat_slot_count(bool pending)
{
	return pending ? config_pending_slots : config_nat_slots;
}

static __always_inline struct nat_slot *nat_slot_at(__u32 index, bool pending)
{
	return pending ? bpf_map_lookup_elem(&pending_slots, &index) : bpf_map_lookup_elem(&nat_slots, &index);
}

/*
 * Whether an owner has an eighth of a table. It then evicts its own entries before it searches for those of larger
 * owners: long searches cost CPU time. A slot stays charged until another connection takes it, so this does not
 * count free slots.
 */
GLOBAL_FN int nat_owner_has_much(__u32 owner, bool pending)
{
	__u32 index = owner & NAT_OWNER_EXTERNAL ? NAT_OWNERS_EXTERNAL : nat_owner_index(owner);
	const __u32 *held = nat_held(index, pending);

	return held && *held > nat_slot_count(pending) / 8;
}

/*
 * Locks and assigns a slot if its use is at most `most`. Returns its use, or NAT_USE_NONE if another CPU has
 * locked it.
 */
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
 * Allocates a slot for a connection of `owner` with initiator tuple *t, and returns its index or NAT_SLOT_NONE.
 * The slot stays locked until nat_slot_release, which the caller calls when the entries are stored or have failed.
 */
GLOBAL_FN int nat_slot_alloc(const struct tuple *t, __u32 owner, bool pending)
{
	__u32 first = (__u64)bpf_get_prandom_u32() * nat_slot_count(pending) >> 32, index;

	if (!t)
		return NAT_SLOT_NONE;
	/* One pass for each use: comparing uses in one loop would make the verifier walk every order of them. */
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

/* Unlocks a slot, and frees it unless `used`. The result has no meaning. */
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
