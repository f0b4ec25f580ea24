/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections that are being opened: how they are found, and how they become established. */
#pragma once

#include "lib/nat/nat_slots.h"

/* Moves a connection, whose one direction is `t`, from `nat_pending` to `nat`. False if there is no room. */
GLOBAL_FN bool nat_establish(const struct tuple *t)
{
	const struct nat_entry *entry, *back;
	struct tuple key, other;
	bool done;
	int slot;

	if (!t)
		return false;
	key = *t;
	entry = bpf_map_lookup_elem(&nat_pending, &key);
	if (!entry)
		return true; /* another CPU is at it, or the table has pushed it out: the next packet */
	nat_reply_key(&other, entry, key.protocol);
	back = bpf_map_lookup_elem(&nat_pending, &other);
	if (!back || !nat_is_reply_of(back, &key))
		return true; /* the same */
	slot = nat_slot_alloc(entry->flags & NAT_INITIATOR ? &key : &other, entry->owner, false);
	if (slot == NAT_SLOT_NONE)
		return false;
	done = !bpf_map_update_elem(&nat, &other, back, BPF_ANY);
	if (done && bpf_map_update_elem(&nat, &key, entry, BPF_ANY)) {
		bpf_map_delete_elem(&nat, &other);
		done = false;
	}
	nat_slot_release(slot, done, false);
	if (!done)
		return false;
	bpf_map_delete_elem(&nat_pending, &other);
	bpf_map_delete_elem(&nat_pending, &key);
	return true;
}

/* How looking for a connection that may still be opening ended. */
enum nat_find_result {
	NAT_FIND_NONE = 0,
	NAT_FIND_ENTRY,
	NAT_FIND_REPLIED, /* the packet establishes it: nat_establish has to be called */
	NAT_FIND_FULL,	  /* would be established, but `nat` is full: DROP_NAT_TABLE_FULL */
};

/*
 * Whether this packet makes of an opening a connection that counts as established; *back is the other direction. TCP: one
 * behind the handshake's first two, so a flood of SYN fills `nat_pending` only, even where a server answers it. Nothing does
 * that nobody has answered, or only by a reset: whoever sends in others' names would fill `nat`. So a connection
 * whose answers do not come by here (DSR) stays where it is.
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
 * The connection of a packet among those that are not established yet, copied to *found; notes the packet. `nat_pending`
 * may push out one half of a connection: that of the opener brings the other one back.
 */
GLOBAL_FN enum nat_find_result nat_lookup_pending(const struct transport *t, __u64 now, struct nat_entry *found)
{
	const struct nat_entry *other = 0;
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
		other = bpf_map_lookup_elem(&nat_pending, &key);
	if (other && !nat_is_reply_of(other, &t->tuple))
		return NAT_FIND_NONE; /* of another connection, which got the answers' key after that was pushed out */
	if (nat_establishes(t, found, other))
		return NAT_FIND_REPLIED;
	if (!other && (found->flags & (NAT_INITIATOR | NAT_DSR)) == NAT_INITIATOR) {
		nat_reply_value(&back, &t->tuple, found);
		if (bpf_map_update_elem(&nat_pending, &key, &back, BPF_NOEXIST))
			return NAT_FIND_NONE; /* somebody else's meanwhile: begin anew */
	}
	return NAT_FIND_ENTRY;
}

/* The connection of a packet among those that are not established yet, copied to *found. It is established if the packet makes it so. */
static __always_inline enum nat_find_result nat_find_pending(const struct transport *t, __u64 now,
							     struct nat_entry *found)
{
	enum nat_find_result v = nat_lookup_pending(t, now, found);

	if (v != NAT_FIND_REPLIED)
		return v;
	return nat_establish(&t->tuple) ? NAT_FIND_ENTRY : NAT_FIND_FULL;
}
