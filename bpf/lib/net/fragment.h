/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets that came in fragments: only the first one has ports, the later ones are judged and translated by what is remembered of
 * it. They have to come after it, as they do from the one that cut the packet.
 */
#pragma once

#include "lib/fwd/sender.h"
#include "lib/net/transport.h"

/* Fields of the fragment offset in the IPv4 header (RFC 791, 3.1) and in IPv6's fragment header (RFC 8200, 4.5). */
enum fragment_field {
	FRAGMENT_IPV4_ANY = 0x3fff, /* an offset, or more to come */
	FRAGMENT_IPV4_OFFSET = 0x1fff,
	FRAGMENT_IPV6_OFFSET = 0xfff8,
};

/*
 * How many packets in pieces are remembered of each sender. A power of two. Those that one host sends to another bear numbers that follow each other (Linux:
 * IPv4), so they get different places.
 */
#define FRAGMENTS_PER_SENDER 32

static __always_inline void fragment_key(struct fragment_key *key, const struct packet *p, const struct transport *t)
{
	__u32 hash = (t->tuple.source.word[3] * HASH_MULTIPLIER ^ t->tuple.destination.word[3]) * HASH_MULTIPLIER >> 16;

	key->sender = sender_of(p->skb, p->program, &p->source);
	key->slot = (hash + bpf_ntohs(t->fragment) + bpf_ntohs(t->fragment >> 16)) % FRAGMENTS_PER_SENDER;
}

static __always_inline bool fragment_matches(const struct fragment *f, const struct transport *t)
{
	return f->id == t->fragment && f->protocol == t->tuple.protocol &&
	       address_equals(&f->source, &t->tuple.source) && address_equals(&f->destination, &t->tuple.destination);
}

/* How long Linux keeps the fragments of a packet for the others, in ns (net.ipv4.ipfrag_time). */
#define FRAGMENT_LIFETIME (30 * 1000000000ULL)

/*
 * Remembers the ports of a first fragment. False if the first fragment of another packet has the same identification, and later ones
 * of that are still to come: they are judged by its ports, and must not be by others from now on. Who cuts packets does not use an identification
 * again so soon (RFC 6864, 4.3); who does so faster, as Linux may, has sent the last one of the other packet before.
 */
static __noinline bool fragment_store(const struct packet *p, const struct transport *t)
{
	struct fragment first = {
		.seen = bpf_ktime_get_coarse_ns(),
		.source = t->tuple.source,
		.destination = t->tuple.destination,
		.id = t->fragment,
		.protocol = t->tuple.protocol,
		.source_port = t->tuple.source_port,
		.destination_port = t->tuple.destination_port,
	};
	const struct fragment *other;
	struct fragment_key key;

	fragment_key(&key, p, t);
	other = bpf_map_lookup_elem(&fragments, &key);
	if (unlikely(other && fragment_matches(other, t) && !other->complete &&
		     first.seen - other->seen < FRAGMENT_LIFETIME &&
		     (other->source_port != first.source_port || other->destination_port != first.destination_port)))
		return false;
	bpf_map_update_elem(&fragments, &key, &first, BPF_ANY);
	return true;
}

/* Gives a later fragment the ports of the first one, if that was seen. */
static __noinline bool fragment_lookup(const struct packet *p, struct transport *t)
{
	struct fragment *first;
	struct fragment_key key;

	fragment_key(&key, p, t);
	first = bpf_map_lookup_elem(&fragments, &key);
	if (!first || !fragment_matches(first, t))
		return false;
	t->tuple.source_port = first->source_port;
	t->tuple.destination_port = first->destination_port;
	if (!fragment_matches(first, t))
		return false; /* another one has got the place meanwhile */
	if (t->in_fragments == TRANSPORT_LAST)
		first->complete = 1;
	return true;
}
