/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a connection begins: both its directions get their entries, unless its answers could not be told from another's. */
#pragma once

#include "translation.h"

/* Which other connection, that has the key of the answers, gives way. One of the same ends does in any case. */
enum give_way {
	GIVE_WAY_NONE = 0,
	GIVE_WAY_ENDED,	     /* one that has ended */
	GIVE_WAY_UNANSWERED, /* one that nobody has answered yet, or that has ended */
};

/* Whether the key of the answers is free in `connections`, or can be made so. */
static __always_inline bool connection_make_way(struct beginning *b, enum give_way who)
{
	const struct connection *taken = bpf_map_lookup_elem(&connections, &b->other);

	if (!taken)
		return true;
	if (!connection_answers(taken, &b->key) && (who == GIVE_WAY_NONE || !connection_over(&b->other, taken)))
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
	b->to.padding[0] = b->to.padding[1] = 0;
	connection_turn(&b->other, &b->to, b->key.protocol);
	connection_turn_value(&b->back, &b->key, &b->to);
	if (b->to.flags & CONNECTION_DIRECT)
		return bpf_map_update_elem(&openings, &b->key, &b->to, BPF_ANY) ? CLAIM_NO_ROOM : CLAIM_BEGUN;
	if (!connection_make_way(b, who))
		return CLAIM_TAKEN;
	if (bpf_map_update_elem(&openings, &b->other, &b->back, BPF_NOEXIST)) {
		taken = bpf_map_lookup_elem(&openings, &b->other);
		if (taken && !connection_answers(taken, &b->key)) {
			if (who != GIVE_WAY_UNANSWERED)
				return CLAIM_TAKEN;
			connection_forget(&b->other, taken);
		}
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

/* How many ports are tried before giving up: at first any, then neighbours, so that a small range is tried whole. */
#define CONNECTION_ATTEMPTS 64

/*
 * Who gives way to attempt number `attempt`. A server may remember for a minute the connection that it has ended, by
 * addresses and ports (TIME-WAIT), and takes no new one at once whose sequence numbers and timestamps are not behind it
 * (RFC 6191); those of another client's port may be anywhere. So ended ones give way only where free ports are rare.
 */
static __always_inline enum give_way connection_attempt_takes(__u32 attempt)
{
	return attempt < CONNECTION_ATTEMPTS / 2 ? GIVE_WAY_NONE : GIVE_WAY_ENDED;
}

/*
 * The port that attempt number `attempt` takes, from the range that translation may use. The same for packets of the same
 * ends, so who opens a connection from the same port again gets the same one, which its server expects of it.
 */
static __always_inline __be16 connection_port(const struct tuple *key, __u32 attempt)
{
	__u32 start = service_hash(key);
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
