/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TTL and hop limit. */
#pragma once

#include "lib/net/packet.h"

/* Decrements the TTL, which must be above 1, and updates the header checksum (RFC 1141). */
static __always_inline void ttl_decrement_ipv4(struct iphdr *ip)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
}

/*
 * Decrements the TTL or hop limit, which must be above 1. IPv4: the header checksum is updated (RFC 1141), so the
 * sum over the header, and with it skb->csum, stays the same. IPv6 has no header checksum; bpf_csum_update
 * corrects skb->csum (CHECKSUM_COMPLETE).
 */
static __always_inline void ttl_decrement(struct packet *p)
{
	if (p->protocol == bpf_htons(ETH_P_IP)) {
		ttl_decrement_ipv4(p->ip4);
		return;
	}
	p->ip6->hop_limit--;
	bpf_csum_update(p->skb, (__u16)~bpf_htons(1));
}
