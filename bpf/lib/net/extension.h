/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IPv6 extension headers and fragment headers. */
#pragma once

#include "lib/net/transport_header.h"

/* Extension headers of IPv6 that may come before the transport header (RFC 8200, 4.1), and how many are looked at. */
enum ipv6_extension {
	IPV6_HOP_BY_HOP = 0,
	IPV6_ROUTING = 43,
	IPV6_FRAGMENT = 44,
	IPV6_DESTINATION = 60,
};

#define IPV6_EXTENSIONS_MAX 4

/* An extension header; `field` and `identification` are the fragment header's (RFC 8200, 4.5). */
struct extension_header {
	__u8 next;
	__u8 length; /* in units of 8 bytes, without the first */
	__be16 field;
	__be32 identification;
};

static __always_inline bool transport_is_extension(__u8 number)
{
	return number == IPV6_HOP_BY_HOP || number == IPV6_ROUTING || number == IPV6_FRAGMENT ||
	       number == IPV6_DESTINATION;
}

/* Notes that the packet is a fragment, `offset` bytes into a larger one. */
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
 * Goes over extension headers: sets protocol, offset and what a fragment header says, of which a packet has one at most (RFC 8200, 4.1).
 * False if they cannot be read.
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
			continue; /* the only fragment (RFC 6946) */
		if (t->in_fragments)
			return false;
		transport_set_fragment(t, bpf_ntohs(h.field) & 0xfff8, h.field & bpf_htons(1), h.identification);
		if (t->kind != TRANSPORT_OTHER)
			return true;
	}
	return !transport_is_extension(t->tuple.protocol);
}

/* What the IPv4 header says about fragments (RFC 791, 3.1). */
static __always_inline void transport_set_ipv4_fragment(struct transport *t, __be16 frag_off, __be16 id)
{
	if (likely(!(frag_off & bpf_htons(0x3fff))))
		return;
	transport_set_fragment(t, (bpf_ntohs(frag_off) & 0x1fff) * 8, frag_off & bpf_htons(0x2000), id);
}
