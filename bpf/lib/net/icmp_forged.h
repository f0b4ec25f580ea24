/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Forged ICMP errors from pods. Only the receiver of a packet or a router on its path may answer it with an ICMP
 * error. A pod is no router, so an error from a pod that quotes a packet to another address is forged. A host that
 * accepts it lowers its path MTU or closes the connection (RFC 5927).
 */
#pragma once

#include "lib/net/icmp.h"

/* Errors that icmp_is_error_ipv4 omits: obsolete, or sent by routers only (RFC 792). */
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

/* Fills the source and what precedes the transport header. Returns false if the IP header is truncated. */
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

/* Whether the packet quoted at `offset` was addressed to `to`. */
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
 * Returns a drop reason if a packet from a pod is a forged ICMP error, or may hide one; 0 otherwise. Errors are
 * too short to need fragmentation (RFC 1812, 4.3.2.3; RFC 4443, 2.4), so a fragmented one is forged too.
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
