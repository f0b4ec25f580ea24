/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a connection begins: both its directions get their entries, unless its answers could not be told from another's. */
#pragma once

#include "connection_opening.h"
#include "nat_ports.h"
#include "translation.h"

/*
 * Whether the entry that has the key of the answers, in `connections` or `openings` (pending), is over, expired, or has to give way to the new
 * connection.
 */
static __always_inline bool connection_gives_way(const struct beginning *b, const struct connection *taken,
						 enum give_way who, bool pending)
{
	if (connection_answers(taken, &b->key) || connection_expired(&b->other, taken, pending))
		return true;
	if (who == GIVE_WAY_SHARE || who == GIVE_WAY_STREAMS)
		return nat_port_gives_way(b, taken, who, pending);
	return pending ? who == GIVE_WAY_UNANSWERED : who != GIVE_WAY_NONE && connection_over(&b->other, taken);
}

/* Whether the key of the answers is free in `connections`, or can be made so. */
static __always_inline bool connection_make_way(struct beginning *b, enum give_way who)
{
	const struct connection *taken = bpf_map_lookup_elem(&connections, &b->other);

	if (!taken)
		return true;
	if (!connection_gives_way(b, taken, who, false))
		return false;
	connection_forget(&b->other, taken);
	return true;
}

/*
 * Begins the connection that is in `translations` with exactly the addresses and ports of its `to`, or says that it
 * cannot be told from another one.
 */
SEPARATE enum claim connection_claim(enum give_way who)
{
	struct translation *x = translation_place(); /* found, so that it has keys and values of maps */
	const struct connection *taken;
	struct beginning *b;

	if (!x)
		return CLAIM_NO_ROOM;
	b = &x->beginning;
	b->to.seen = connection_now();
	b->to.packets = 1;
	b->to.born = connection_clock(b->to.seen);
	connection_turn(&b->other, &b->to, b->key.protocol);
	connection_turn_value(&b->back, &b->key, &b->to);
	if (b->to.flags & CONNECTION_DIRECT)
		return bpf_map_update_elem(&openings, &b->key, &b->to, BPF_ANY) ? CLAIM_NO_ROOM : CLAIM_BEGUN;
	if (!connection_make_way(b, who))
		return CLAIM_TAKEN;
	if (bpf_map_update_elem(&openings, &b->other, &b->back, BPF_NOEXIST)) {
		taken = bpf_map_lookup_elem(&openings, &b->other);
		if (taken && !connection_gives_way(b, taken, who, true))
			return CLAIM_TAKEN;
		if (taken && !connection_answers(taken, &b->key))
			connection_forget(&b->other, taken);
		if (bpf_map_update_elem(&openings, &b->other, &b->back, BPF_ANY))
			return CLAIM_NO_ROOM;
	}
	/* Another CPU may have made an established one of who had it among the openings. */
	taken = bpf_map_lookup_elem(&connections, &b->other);
	if (taken && !connection_answers(taken, &b->key)) {
		bpf_map_delete_elem(&openings, &b->other);
		return CLAIM_TAKEN;
	}
	return bpf_map_update_elem(&openings, &b->key, &b->to, BPF_ANY) ? CLAIM_NO_ROOM : CLAIM_BEGUN;
}
