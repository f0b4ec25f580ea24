/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections that are being opened: how they are found, and how they become established. */
#pragma once

#include "nat_share.h"

/* Moves a connection, whose one direction is `t`, from `openings` to `connections`. False if there is no room. */
SEPARATE bool connection_promote(const struct tuple *t)
{
	const struct connection *c, *back;
	struct tuple key, other;
	bool done;
	int slot;

	if (!t)
		return false;
	key = *t;
	c = bpf_map_lookup_elem(&openings, &key);
	if (!c)
		return true; /* another CPU is at it, or the table has pushed it out: the next packet */
	connection_turn(&other, c, key.protocol);
	back = bpf_map_lookup_elem(&openings, &other);
	if (!back || !connection_answers(back, &key))
		return true; /* the same */
	slot = nat_slot_take(c->flags & CONNECTION_OPENER ? &key : &other, c->owner, false);
	if (slot == NAT_SLOT_NONE)
		return false;
	done = !bpf_map_update_elem(&connections, &other, back, BPF_ANY);
	if (done && bpf_map_update_elem(&connections, &key, c, BPF_ANY)) {
		bpf_map_delete_elem(&connections, &other);
		done = false;
	}
	nat_slot_release(slot, done, false);
	if (!done)
		return false;
	bpf_map_delete_elem(&openings, &other);
	bpf_map_delete_elem(&openings, &key);
	return true;
}

/* How looking for a connection that may still be opening ended. */
enum finding {
	FOUND_NOTHING = 0,
	FOUND_CONNECTION,
	FOUND_REPLIED, /* the packet establishes it: connection_promote has to be called */
	FOUND_NO_ROOM, /* would be established, but `connections` is full: DROP_CONNECTIONS_FULL */
};

/*
 * Whether this packet makes of an opening a connection that counts as established; *back is the other direction. TCP: one
 * behind the handshake's first two, so a flood of SYN fills `openings` only, even where a server answers it. Nothing does
 * that nobody has answered, or only by a reset: whoever sends in others' names would fill `connections`. So a connection
 * whose answers do not come by here (DSR) stays where it is.
 */
static __always_inline bool connection_established_by(const struct transport *t, const struct connection *c,
						      const struct connection *back)
{
	if (c->flags & CONNECTION_DIRECT || t->flags & (TCP_SYN | TCP_RST))
		return false;
	if (!(c->flags & CONNECTION_OPENER))
		return true;
	return back && back->packets && !(back->flags & CONNECTION_RESET);
}

/*
 * The connection of a packet among those that are not established yet, copied to *found; notes the packet. `openings`
 * may push out one half of a connection: that of the opener brings the other one back.
 */
SEPARATE enum finding connection_look_up_opening(const struct transport *t, __u64 now, struct connection *found)
{
	const struct connection *other = 0;
	struct connection *c, back;
	struct tuple key;

	if (!t || !found)
		return FOUND_NOTHING;
	key = t->tuple;
	c = bpf_map_lookup_elem(&openings, &key);
	if (!c)
		return FOUND_NOTHING;
	if (transport_has_flags(t->tuple.protocol) && !connection_note_flags(t, c))
		return FOUND_NOTHING;
	connection_note_packet(c, t->tuple.protocol, now);
	if (c->packets < 255)
		c->packets++;
	*found = *c;
	connection_turn(&key, found, t->tuple.protocol);
	if (!(found->flags & CONNECTION_DIRECT))
		other = bpf_map_lookup_elem(&openings, &key);
	if (other && !connection_answers(other, &t->tuple))
		return FOUND_NOTHING; /* of another connection, which got the answers' key after that was pushed out */
	if (connection_established_by(t, found, other))
		return FOUND_REPLIED;
	if (!other && (found->flags & (CONNECTION_OPENER | CONNECTION_DIRECT)) == CONNECTION_OPENER) {
		connection_turn_value(&back, &t->tuple, found);
		if (bpf_map_update_elem(&openings, &key, &back, BPF_NOEXIST))
			return FOUND_NOTHING; /* somebody else's meanwhile: begin anew */
	}
	return FOUND_CONNECTION;
}

/* The connection of a packet among those that are not established yet, copied to *found. It is established if the packet makes it so. */
static __always_inline enum finding connection_find_opening(const struct transport *t, __u64 now,
							    struct connection *found)
{
	enum finding v = connection_look_up_opening(t, now, found);

	if (v != FOUND_REPLIED)
		return v;
	return connection_promote(&t->tuple) ? FOUND_CONNECTION : FOUND_NO_ROOM;
}
