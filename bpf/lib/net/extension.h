/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IPv6 extension headers, and fragment headers of both families. */
#pragma once

#include "lib/net/transport_header.h"

/*
 * Extension headers that may precede the transport header (RFC 8200, 4.1). The parser reads IPV6_EXTENSIONS_MAX of
 * them.
 */
enum ipv6_extension {
	IPV6_HOP_BY_HOP = 0,
	IPV6_ROUTING = 43,
	IPV6_FRAGMENT = 44,
	IPV6_DESTINATION = 60,
};

#define IPV6_EXTENSIONS_MAX 4

/* `field` and `identification` belong to the fragment header (RFC 8200, 4.5). */
struct extension_header {
	__u8 next;
	__u8 length; /* in 8-byte units, not counting the first */
	__be16 field;
	__be32 identification;
};

static __always_inline bool transport_is_extension(__u8 number)
{
	return number == IPV6_HOP_BY_HOP || number == IPV6_ROUTING || number == IPV6_FRAGMENT ||
	       number == IPV6_DESTINATION;
}

/* Marks the packet as a fragment at `offset` bytes of the original packet. */
static __always_inline void transport_set_fragment(struct transport *t, __u32 offset, bool more, __u32 id)
{
	t->in_fragments = more ? TRANSPORT_MORE : TRANSPORT_LAST;
	t->fragment = id;
	if (!offset)
		return;
	t->kind = TRANSPORT_FRAGMENT;
	if (offset < TRANSPORT_TCP_WHOLE && transport_has_flags(t->tuple.protocol))
		t->kind = TRANSPORT_BROKEN;
}

/*
 * Skips extension headers: sets the protocol, the offset of the transport header and the fragment fields. A packet
 * has at most one fragment header (RFC 8200, 4.1). Returns false if the headers cannot be read.
 */
GLOBAL_FN bool transport_skip_extensions(struct __sk_buff *skb, struct transport *t)
{
	struct extension_header h;

	if (!t)
		return false;
	for (int i = 0; i < IPV6_EXTENSIONS_MAX; i++) {
		__u8 number = t->tuple.protocol;

		if (!transport_is_extension(number))
			return true;
		if (t->offset + sizeof(h) > t->end || bpf_skb_load_bytes(skb, t->offset, &h, sizeof(h)))
			return false;
		t->tuple.protocol = h.next;
		t->offset += 8 + (number == IPV6_FRAGMENT ? 0 : h.length * 8);
		if (number != IPV6_FRAGMENT)
			continue;
		if (!(h.field & bpf_htons(0xfff9)))
			continue; /* atomic fragment (RFC 6946) */
		if (t->in_fragments)
			return false;
		transport_set_fragment(t, bpf_ntohs(h.field) & 0xfff8, h.field & bpf_htons(1), h.identification);
		if (t->kind != TRANSPORT_OTHER)
			return true;
	}
	return !transport_is_extension(t->tuple.protocol);
}

/* Reads the fragment fields of the IPv4 header (RFC 791, 3.1). */
static __always_inline void transport_set_ipv4_fragment(struct transport *t, __be16 frag_off, __be16 id)
{
	if (likely(!(frag_off & bpf_htons(0x3fff))))
		return;
	transport_set_fragment(t, (bpf_ntohs(frag_off) & 0x1fff) * 8, frag_off & bpf_htons(0x2000), id);
}
