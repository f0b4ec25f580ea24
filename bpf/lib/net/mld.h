/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Multicast listener discovery of IPv6 (RFC 2710, RFC 3810). */
#pragma once

#include "lib/net/packet.h"

/*
 * A query of a router: the hop-by-hop options, which have the router alert (RFC 2711), and the part of ICMPv6 that
 * versions 1 and 2 share.
 */
struct mld_query {
	__u8 next_header, length, options[6];
	__u8 type, code;
	__sum16 checksum;
	__be16 delay, reserved;
	__be32 group[4];
};

#define MLD_QUERY 130
#define MLD_REPORT 131
#define MLD_DONE 132
#define MLD_REPORT_2 143

/* What version 2 adds to a query without sources, in bytes. */
#define MLD_VERSION_2 4

/*
 * The length of the packet behind the IPv6 header if it is a query without sources, in bytes; else 0. May move the
 * packet.
 */
static __always_inline __u32 mld_query_length(struct packet *p)
{
	__u32 length = bpf_ntohs(p->ip6->payload_len);
	const struct mld_query *q;

	if (p->ip6->nexthdr != 0 || p->ip6->hop_limit != 1 || !address_is_ipv6_multicast(&p->destination) ||
	    (p->source.word[0] & bpf_htonl(0xffc00000)) != bpf_htonl(0xfe800000)) /* fe80::/10 */
		return 0;
	if ((length != sizeof(*q) && length != sizeof(*q) + MLD_VERSION_2) ||
	    !packet_has(p, sizeof(*p->ip6) + sizeof(*q)))
		return 0;
	q = (void *)p->eth + ETH_HLEN + sizeof(*p->ip6);
	return q->next_header == PROTOCOL_ICMPV6 && !q->length && q->type == MLD_QUERY ? length : 0;
}

/* Whether an IPv6 packet with hop-by-hop options is a report of a multicast listener, of version 1 or 2. */
static __always_inline bool mld_is_report(const struct packet *p)
{
	__u8 header[__builtin_offsetof(struct mld_query, code)];
	__u8 type;

	if (!address_is_ipv6_multicast(&p->destination) ||
	    bpf_skb_load_bytes(p->skb, ETH_HLEN + sizeof(*p->ip6), header, sizeof(header)))
		return false;
	type = header[__builtin_offsetof(struct mld_query, type)];
	return header[0] == PROTOCOL_ICMPV6 && !header[1] &&
	       (type == MLD_REPORT || type == MLD_DONE || type == MLD_REPORT_2);
}
