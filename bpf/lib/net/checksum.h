/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Internet checksum (RFC 1071): sums of 32 bits that are not folded yet, as bpf_csum_diff gives them. */
#pragma once

#include "lib/net/packet.h"

static __always_inline __wsum checksum_add(__wsum a, __wsum b)
{
	a += b;
	return a + (a < b);
}

/* What goes into a header for a sum over everything that the checksum covers. */
static __always_inline __sum16 checksum_fold(__wsum sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* A checksum after what it covers has changed by `diff`, the sum of what is new less that of what was there (RFC 1624). */
static __always_inline __sum16 checksum_changed(__sum16 check, __wsum diff)
{
	return checksum_fold(checksum_add((__u16)~check, diff));
}

/* The sum over the addresses, the length and the protocol that TCP, UDP and ICMPv6 count in (RFC 9293, 3.1). */
static __always_inline __wsum checksum_pseudo_ipv4(__be32 source, __be32 destination, __u8 protocol, __u32 length)
{
	__be32 header[] = {source, destination, bpf_htonl((__u32)protocol << 16 | length)};

	return bpf_csum_diff(0, 0, header, sizeof(header), 0);
}

/* The same for IPv6 (RFC 8200, 8.1). */
static __always_inline __wsum checksum_pseudo_ipv6(const struct ipv6hdr *ip, __u8 protocol, __u32 length)
{
	__be32 header[10];

	__builtin_memcpy(header, &ip->saddr, 32);
	header[8] = bpf_htonl(length);
	header[9] = bpf_htonl(protocol);
	return bpf_csum_diff(0, 0, header, sizeof(header), 0);
}

/*
 * Whether the device is to finish the checksum of TCP or UDP (CHECKSUM_PARTIAL), which then is so far the sum over
 * the pseudo header alone. No field tells; but bpf_l4_csum_replace leaves alone what is not finished. It is tried on
 * the first bytes of the frame, which get back what they were.
 */
static __always_inline bool checksum_pending(struct __sk_buff *skb)
{
	__u16 before = 0, after = 0;

	if (bpf_skb_load_bytes(skb, 0, &before, sizeof(before)) || bpf_l4_csum_replace(skb, 0, 0, 1, 0) ||
	    bpf_skb_load_bytes(skb, 0, &after, sizeof(after)))
		return false;
	bpf_skb_store_bytes(skb, 0, &before, sizeof(before), 0);
	return before == after;
}
