/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP errors from pods. The receiver of a packet may answer it with an error, and so may each router on its path. A pod is no router:
 * it receives only what is addressed to it. An ICMP error from a pod that quotes a packet to somebody else is forged. A host that
 * believes it sends smaller packets to that destination, or none (RFC 5927).
 */
#pragma once

#include "lib/net/icmp.h"

/* Types of ICMP that quote a packet and that icmp_is_error_ipv4 leaves out: they are obsolete or for routers (RFC 792). */
enum icmp_other_error {
	ICMP_SOURCE_QUENCH = 4,
	ICMP_REDIRECT = 5,
};

static __always_inline bool icmp_forged_is_error(bool ipv4, __u8 type)
{
	if (!ipv4)
		return type < ICMPV6_ERRORS_END;
	return icmp_is_error_ipv4(type) || type == ICMP_SOURCE_QUENCH || type == ICMP_REDIRECT;
}

/* Fills *t as far as it is known before the transport header is read, and *source. False if the header is cut off. */
static __always_inline bool icmp_forged_parse(struct __sk_buff *skb, struct transport *t, struct address *source)
{
	struct ipv6hdr ip6;
	struct iphdr ip4;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip4, sizeof(ip4)))
			return false;
		address_from_ipv4(source, ip4.saddr);
		t->tuple.protocol = ip4.protocol;
		t->offset = ETH_HLEN + ip4.ihl * 4;
		transport_set_ipv4_fragment(t, ip4.frag_off, ip4.id);
		return true;
	}
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip6, sizeof(ip6)))
		return false;
	address_from_ipv6(source, &ip6.saddr);
	t->tuple.protocol = ip6.nexthdr;
	t->offset = ETH_HLEN + sizeof(ip6);
	t->end = packet_end(skb, sizeof(ip6), ip6.payload_len);
	if (!transport_skip_extensions(skb, t))
		t->kind = t->in_fragments ? TRANSPORT_BROKEN : TRANSPORT_UNREADABLE;
	return true;
}

/* Whether the packet that an error quotes at this offset was to this address. */
static __always_inline bool icmp_forged_quotes(struct __sk_buff *skb, __u32 offset, const struct address *to)
{
	struct address quoted;
	__be32 ipv4;

	if (address_is_ipv4(to)) {
		if (bpf_skb_load_bytes(skb, offset + __builtin_offsetof(struct iphdr, daddr), &ipv4, sizeof(ipv4)))
			return false;
		return ipv4 == to->word[3];
	}
	return !bpf_skb_load_bytes(skb, offset + __builtin_offsetof(struct ipv6hdr, daddr), &quoted, sizeof(quoted)) &&
	       address_equals(&quoted, to);
}

/*
 * Asks whether a packet from a pod is a forged ICMP error, or may hide one: 0, or a reason to drop it. No error is long enough to need
 * fragments (RFC 1812, 4.3.2.3; RFC 4443, 2.4), so one that comes in fragments is forged too.
 */
GLOBAL_FN int icmp_forged(struct __sk_buff *skb)
{
	struct transport t = {};
	struct address source;
	__u8 type;

	if (!icmp_forged_parse(skb, &t, &source))
		return 0;
	if (t.kind == TRANSPORT_UNREADABLE)
		return DROP_UNREADABLE;
	if (t.kind == TRANSPORT_BROKEN)
		return DROP_BAD_FRAGMENT;
	if (t.kind == TRANSPORT_FRAGMENT || !transport_is_icmp(t.tuple.protocol) ||
	    bpf_skb_load_bytes(skb, t.offset, &type, sizeof(type)) ||
	    !icmp_forged_is_error(address_is_ipv4(&source), type))
		return 0;
	if (t.in_fragments || !icmp_forged_quotes(skb, t.offset + sizeof(struct icmp_header), &source))
		return DROP_FORGED_ERROR;
	return 0;
}
