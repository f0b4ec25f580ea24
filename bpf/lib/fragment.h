/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets that came in fragments: only the first one has ports, the later ones are judged and translated by what is remembered of
 * it. They have to come after it, as they do from the one that cut the packet.
 */
#pragma once

#include "transport.h"

/* Fields of the fragment offset in the IPv4 header (RFC 791, 3.1) and in IPv6's fragment header (RFC 8200, 4.5). */
enum fragment_field {
	FRAGMENT_IPV4_ANY = 0x3fff, /* an offset, or more to come */
	FRAGMENT_IPV4_OFFSET = 0x1fff,
	FRAGMENT_IPV6_OFFSET = 0xfff8,
};

static __always_inline void fragment_key(struct fragment_key *key, const struct tuple *t, __u32 id)
{
	key->source = t->source;
	key->destination = t->destination;
	key->id = id;
	key->protocol = t->protocol;
}

/* How long Linux keeps the fragments of a packet for the others, in ns (net.ipv4.ipfrag_time). */
#define FRAGMENT_LIFE (30 * 1000000000ULL)

/*
 * Remembers the ports of a first fragment. False if the first fragment of another packet has the same identification, and later ones
 * of that are still to come: they are judged by its ports, and must not be by others from now on. Who cuts packets does not use an identification
 * again so soon (RFC 6864, 4.3); who does so faster, as Linux may, has sent the last one of the other packet before.
 */
static __noinline bool fragment_remember(const struct tuple *t, __u32 id)
{
	struct fragment_ports ports = {
		.seen = bpf_ktime_get_coarse_ns(),
		.source = t->source_port,
		.destination = t->destination_port,
	};
	const struct fragment_ports *other;
	struct fragment_key key;

	fragment_key(&key, t, id);
	other = bpf_map_lookup_elem(&fragments, &key);
	if (unlikely(other && !other->complete && ports.seen - other->seen < FRAGMENT_LIFE &&
		     (other->source != ports.source || other->destination != ports.destination)))
		return false;
	bpf_map_update_elem(&fragments, &key, &ports, BPF_ANY);
	return true;
}

/* Gives a later fragment the ports of the first one, if that was seen. */
static __noinline bool fragment_recall(struct transport *t)
{
	struct fragment_ports *ports;
	struct fragment_key key;

	fragment_key(&key, &t->tuple, t->fragment);
	ports = bpf_map_lookup_elem(&fragments, &key);
	if (!ports)
		return false;
	if (t->in_pieces == TRANSPORT_LAST)
		ports->complete = 1;
	t->tuple.source_port = ports->source;
	t->tuple.destination_port = ports->destination;
	return true;
}
