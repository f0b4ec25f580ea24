/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Conntrack entries: key, direction, counters. */
#pragma once

#include <bpf/bpf_endian.h>
#include "types_policy.h"

/* Whether the source is the higher end, by address and then port. */
static __always_inline bool ct_is_reversed(const struct tuple *t)
{
	for (int i = 0; i < 4; i++) {
		if (t->source.word[i] != t->destination.word[i])
			return bpf_ntohl(t->source.word[i]) > bpf_ntohl(t->destination.word[i]);
	}
	return bpf_ntohs(t->source_port) > bpf_ntohs(t->destination_port);
}

/* The key of a packet's entry, the same for both directions. Returns whether it is reversed. */
static __always_inline bool ct_key(struct tuple *key, const struct tuple *t)
{
	bool reversed = ct_is_reversed(t);

	key->source = reversed ? t->destination : t->source;
	key->destination = reversed ? t->source : t->destination;
	key->source_port = reversed ? t->destination_port : t->source_port;
	key->destination_port = reversed ? t->source_port : t->destination_port;
	key->protocol = t->protocol;
	key->padding[0] = key->padding[1] = key->padding[2] = 0;
	return reversed;
}

/* The counter index of packets whose key is `reversed`. */
static __always_inline __u32 ct_direction(const struct ct_entry *ct, bool reversed)
{
	return !!(ct->flags & CT_REVERSED) != reversed;
}

static __always_inline void ct_count(struct ct_entry *ct, __u32 direction, __u64 packets, __u64 bytes)
{
	__sync_fetch_and_add(direction ? &ct->packets[1] : &ct->packets[0], packets);
	__sync_fetch_and_add(direction ? &ct->bytes[1] : &ct->bytes[0], bytes);
}

/* TCP: both ends have sent FIN, or one RST. */
static __always_inline bool ct_is_closed(__u32 flags)
{
	const __u32 both = CT_FIN | CT_REPLY_FIN;

	return flags & CT_RESET || (flags & both) == both;
}
