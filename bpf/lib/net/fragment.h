/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fragment tracking. Only the first fragment has ports; later ones take them from `fragments`. Fragments must
 * arrive in order, as the host that fragments a packet sends them.
 */
#pragma once

#include "lib/fwd/sender.h"
#include "lib/net/transport.h"

/* Fields of the IPv4 fragment offset (RFC 791, 3.1) and of the IPv6 fragment header (RFC 8200, 4.5). */
enum fragment_field {
	FRAGMENT_IPV4_ANY = 0x3fff, /* an offset, or more fragments */
	FRAGMENT_IPV4_OFFSET = 0x1fff,
	FRAGMENT_IPV6_OFFSET = 0xfff8,
};

/*
 * Fragmented packets tracked for each sender, a power of two. Linux numbers IPv4 packets to one host
 * consecutively, so they get different slots.
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

/* How long Linux waits for the remaining fragments of a packet, in ns (net.ipv4.ipfrag_time). */
#define FRAGMENT_LIFETIME (30 * 1000000000ULL)

/*
 * Stores the ports of a first fragment. Returns false if another packet with the same identification is still
 * incomplete and has other ports: its later fragments were evaluated by those ports and must not change them.
 * Hosts do not reuse an identification that soon (RFC 6864, 4.3). Linux may at high rates, but sends the last
 * fragment of the older packet first.
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

/* Gives a later fragment the ports of the first one. Returns false if that was not seen. */
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
		return false; /* another packet has taken the slot */
	if (t->in_fragments == TRANSPORT_LAST)
		first->complete = 1;
	return true;
}
