/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Headers of a reply that is made of the packet itself. */
#pragma once

#include "lib/net/checksum.h"
#include "lib/net/transport.h"

/* TTL, hop limit and TOS of replies, as the kernel sets them (RFC 1812, 4.3.2.5: internetwork control). */
enum icmp_reply_header {
	ICMP_REPLY_TTL = 64,
	ICMP_REPLY_TOS = 0xc0,
	ICMP_REPLY_DF = 0x4000,
};

/* Returns the frame to its sender. */
static __always_inline long icmp_reply_swap_macs(struct __sk_buff *skb)
{
	__u8 from[2 * ETH_ALEN], to[2 * ETH_ALEN];

	if (bpf_skb_load_bytes(skb, 0, from, sizeof(from)))
		return -1;
	__builtin_memcpy(to, from + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(to + ETH_ALEN, from, ETH_ALEN);
	return bpf_skb_store_bytes(skb, 0, to, sizeof(to), 0);
}

/* The header of a reply. `from` and `to` are the addresses of the original packet. */
static __always_inline void icmp_reply_ipv4_header(struct iphdr *ip, __be32 from, __be32 to, __u8 protocol,
						   __u32 length)
{
	*ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tos = protocol == PROTOCOL_ICMP ? ICMP_REPLY_TOS : 0,
		.tot_len = bpf_htons(length),
		.frag_off = bpf_htons(ICMP_REPLY_DF),
		.ttl = ICMP_REPLY_TTL,
		.protocol = protocol,
		.saddr = to,
		.daddr = from,
	};
	ip->check = checksum_fold(bpf_csum_diff(0, 0, (__be32 *)ip, sizeof(*ip), 0));
}

static __always_inline void icmp_reply_ipv6_header(struct ipv6hdr *ip, const struct ipv6hdr *packet, __u8 protocol,
						   __u32 payload)
{
	*ip = (struct ipv6hdr){
		.version = 6,
		.payload_len = bpf_htons(payload),
		.nexthdr = protocol,
		.hop_limit = ICMP_REPLY_TTL,
		.saddr = packet->daddr,
		.daddr = packet->saddr,
	};
}

/* Trims the packet to `length` bytes, which it must have. */
static __always_inline long icmp_reply_trim(struct __sk_buff *skb, __u32 length)
{
	/* Growing the skb ends CHECKSUM_COMPLETE; both calls end GSO and linearise it. */
	return bpf_skb_change_tail(skb, length - 1, 0) ? -1 : bpf_skb_change_tail(skb, length, 0);
}
