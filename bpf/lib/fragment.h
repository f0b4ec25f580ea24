/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets that came in fragments: only the first one has ports, the later ones are translated by what is remembered of
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

static __noinline void fragment_remember(const struct tuple *t, __u32 id)
{
	struct fragment_ports ports = {
		.seen = bpf_ktime_get_coarse_ns(),
		.source = t->source_port,
		.destination = t->destination_port,
	};
	struct fragment_key key;

	fragment_key(&key, t, id);
	bpf_map_update_elem(&fragments, &key, &ports, BPF_ANY);
}

static __noinline bool fragment_recall(struct tuple *t, __u32 id)
{
	const struct fragment_ports *ports;
	struct fragment_key key;

	fragment_key(&key, t, id);
	ports = bpf_map_lookup_elem(&fragments, &key);
	if (!ports)
		return false;
	t->source_port = ports->source;
	t->destination_port = ports->destination;
	return true;
}
