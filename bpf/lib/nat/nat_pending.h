/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pending NAT entries: connections that have not been established yet. */
#pragma once

#include "lib/nat/nat_slots.h"

/* Moves a connection, one direction of which is `t`, from `nat_pending` to `nat`. Returns false if that is full. */
GLOBAL_FN bool nat_establish(const struct tuple *t)
{
	const struct nat_entry *entry, *back;
	struct tuple key, reply_tuple;
	bool done;
	int slot;

	if (!t)
		return false;
	key = *t;
	entry = bpf_map_lookup_elem(&nat_pending, &key);
	if (!entry)
		return true; /* moved by another CPU, or evicted: the next packet retries */
	nat_reply_key(&reply_tuple, entry, key.protocol);
	back = bpf_map_lookup_elem(&nat_pending, &reply_tuple);
	if (!back || !nat_is_reply_of(back, &key))
		return true; /* likewise */
	slot = nat_slot_alloc(entry->flags & NAT_INITIATOR ? &key : &reply_tuple, entry->owner, false);
	if (slot == NAT_SLOT_NONE)
		return false;
	done = !bpf_map_update_elem(&nat, &reply_tuple, back, BPF_ANY);
	if (done && bpf_map_update_elem(&nat, &key, entry, BPF_ANY)) {
		bpf_map_delete_elem(&nat, &reply_tuple);
		done = false;
	}
	nat_slot_release(slot, done, false);
	if (!done)
		return false;
	bpf_map_delete_elem(&nat_pending, &reply_tuple);
	bpf_map_delete_elem(&nat_pending, &key);
	return true;
}

/* The result of a lookup. */
enum nat_find_result {
	NAT_FIND_NONE = 0,
	NAT_FIND_ENTRY,
	NAT_FIND_REPLIED, /* the packet establishes it: call nat_establish */
	NAT_FIND_FULL,	  /* cannot be established: DROP_NAT_TABLE_FULL */
};

/*
 * Whether this packet establishes a pending connection; *back is the other direction. TCP: the first packet after
 * SYN and SYN-ACK, so a SYN flood fills `nat_pending` only, even if a server replies. A connection without a
 * reply, or with only a reset, stays pending: forged sources could fill `nat`. So does DSR, whose replies do not
 * pass this node.
 */
static __always_inline bool nat_establishes(const struct transport *t, const struct nat_entry *entry,
					    const struct nat_entry *back)
{
	if (entry->flags & NAT_DSR || t->flags & (TCP_SYN | TCP_RST))
		return false;
	if (!(entry->flags & NAT_INITIATOR))
		return true;
	return back && back->packets && !(back->flags & NAT_RESET);
}

/*
 * Looks up a pending connection, copies it to *found and records the packet. The entry of the other direction may
 * have been evicted: a packet of the initiator restores it.
 */
GLOBAL_FN enum nat_find_result nat_lookup_pending(const struct transport *t, __u64 now, struct nat_entry *found)
{
	const struct nat_entry *reply = 0;
	struct nat_entry *entry, back;
	struct tuple key;

	if (!t || !found)
		return NAT_FIND_NONE;
	key = t->tuple;
	entry = bpf_map_lookup_elem(&nat_pending, &key);
	if (!entry)
		return NAT_FIND_NONE;
	if (transport_has_flags(t->tuple.protocol) && !nat_note_flags(t, entry))
		return NAT_FIND_NONE;
	nat_touch(entry, t->tuple.protocol, now);
	if (entry->packets < 255)
		entry->packets++;
	*found = *entry;
	nat_reply_key(&key, found, t->tuple.protocol);
	if (!(found->flags & NAT_DSR))
		reply = bpf_map_lookup_elem(&nat_pending, &key);
	if (reply && !nat_is_reply_of(reply, &t->tuple))
		return NAT_FIND_NONE; /* another connection has taken the reply tuple */
	if (nat_establishes(t, found, reply))
		return NAT_FIND_REPLIED;
	if (!reply && (found->flags & (NAT_INITIATOR | NAT_DSR)) == NAT_INITIATOR) {
		nat_reply_value(&back, &t->tuple, found);
		if (bpf_map_update_elem(&nat_pending, &key, &back, BPF_NOEXIST))
			return NAT_FIND_NONE; /* taken meanwhile: create it anew */
	}
	return NAT_FIND_ENTRY;
}

/* Looks up a pending connection and establishes it if the packet does so. */
static __always_inline enum nat_find_result nat_find_pending(const struct transport *t, __u64 now,
							     struct nat_entry *found)
{
	enum nat_find_result v = nat_lookup_pending(t, now, found);

	if (v != NAT_FIND_REPLIED)
		return v;
	return nat_establish(&t->tuple) ? NAT_FIND_ENTRY : NAT_FIND_FULL;
}
