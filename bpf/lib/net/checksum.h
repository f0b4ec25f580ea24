/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Internet checksum (RFC 1071). Sums are 32 bits wide and not folded, as bpf_csum_diff returns them. */
#pragma once

#include "lib/net/packet.h"

static __always_inline __wsum checksum_add(__wsum a, __wsum b)
{
	a += b;
	return a + (a < b);
}

/* Folds a sum of 32-bit words that has kept all carries. */
static __always_inline __wsum checksum_fold64(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

/* The checksum field for a sum over everything that the checksum covers. */
static __always_inline __sum16 checksum_fold(__wsum sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/*
 * Updates a checksum incrementally (RFC 1624). `diff` is the sum of the new words and of the complements of the
 * old ones.
 */
static __always_inline __sum16 checksum_changed(__sum16 check, __wsum diff)
{
	return checksum_fold(checksum_add((__u16)~check, diff));
}

/* The pseudo header of TCP, UDP and ICMPv6: addresses, length and protocol (RFC 9293, 3.1). */
static __always_inline __wsum checksum_pseudo_ipv4(__be32 source, __be32 destination, __u8 protocol, __u32 length)
{
	__be32 header[] = {source, destination, bpf_htonl((__u32)protocol << 16 | length)};

	return bpf_csum_diff(0, 0, header, sizeof(header), 0);
}

/* Likewise for IPv6 (RFC 8200, 8.1). */
static __always_inline __wsum checksum_pseudo_ipv6(const struct ipv6hdr *ip, __u8 protocol, __u32 length)
{
	__be32 header[10];

	__builtin_memcpy(header, &ip->saddr, 32);
	header[8] = bpf_htonl(length);
	header[9] = bpf_htonl(protocol);
	return bpf_csum_diff(0, 0, header, sizeof(header), 0);
}

/*
 * Whether the device still has to finish the TCP or UDP checksum (CHECKSUM_PARTIAL); the field then holds the sum
 * over the pseudo header. No skb field that BPF can read says so, but bpf_l4_csum_replace leaves such checksums
 * alone. The function tries it on the first two bytes of the frame and restores them.
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
