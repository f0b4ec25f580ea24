/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a connection begins: both its directions get their entries, unless its answers could not be told from another's. */
#pragma once

#include "translation.h"

/*
 * Whether the key of the answers is free in `connections`, or can be made so: it is this connection's own, or of one that has ended.
 */
static __always_inline bool connection_make_way(struct beginning *b)
{
	const struct connection *taken = bpf_map_lookup_elem(&connections, &b->other);

	if (!taken)
		return true;
	if (!connection_answers(taken, &b->key) && !connection_over(&b->other, taken))
		return false;
	connection_forget(&b->other, taken);
	return true;
}

/*
 * Begins the connection that is in `translations` with exactly the addresses and ports of its `to`, or says that it
 * cannot be told from another one. With `replace`, one that nobody has answered yet gives way.
 */
SEPARATE enum claim connection_claim(bool replace)
{
	struct translation *x = translation_place(); /* found, so that it has keys and values of maps */
	const struct connection *taken;
	struct beginning *b;

	if (!x)
		return CLAIM_NO_ROOM;
	b = &x->beginning;
	b->to.seen = connection_now();
	b->to.packets = 1;
	b->to.padding[0] = b->to.padding[1] = b->to.padding[2] = 0;
	connection_turn(&b->other, &b->to, b->key.protocol);
	connection_turn_value(&b->back, &b->key, &b->to);
	if (b->to.flags & CONNECTION_DIRECT)
		return bpf_map_update_elem(&openings, &b->key, &b->to, BPF_ANY) ? CLAIM_NO_ROOM : CLAIM_BEGUN;
	if (!connection_make_way(b))
		return CLAIM_TAKEN;
	if (bpf_map_update_elem(&openings, &b->other, &b->back, BPF_NOEXIST)) {
		taken = bpf_map_lookup_elem(&openings, &b->other);
		if (!taken)
			return CLAIM_NO_ROOM;
		if (!connection_answers(taken, &b->key)) {
			if (!replace)
				return CLAIM_TAKEN;
			connection_forget(&b->other, taken);
		}
		if (bpf_map_update_elem(&openings, &b->other, &b->back, BPF_ANY))
			return CLAIM_NO_ROOM;
	}
	return bpf_map_update_elem(&openings, &b->key, &b->to, BPF_ANY) ? CLAIM_NO_ROOM : CLAIM_BEGUN;
}

/* How many ports are tried before giving up: at first any, then neighbours, so that a small range is tried whole. */
#define CONNECTION_ATTEMPTS 64

/* The port that attempt number `attempt` takes, from the range that translation may use. `start` is random and the same for all attempts. */
static __always_inline __be16 connection_port(__u32 start, __u32 attempt)
{
	__u32 ports = (__u32)config_nat_last - config_nat_first + 1;

	if (attempt < CONNECTION_ATTEMPTS / 2)
		start *= 2 * attempt + 1; /* odd: as random as start */
	return bpf_htons(config_nat_first + (start + attempt) % ports);
}

/* Whether a port is one that translation may give, in network order. */
static __always_inline bool connection_port_is_ours(__be16 port)
{
	__u16 host = bpf_ntohs(port);

	return host >= config_nat_first && host <= config_nat_last;
}
