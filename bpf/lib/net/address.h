/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Addresses as every map holds them: 128 bits, IPv4 as IPv4-mapped IPv6. */
#pragma once

#include <bpf/bpf_endian.h>
#include <linux/in6.h>
#include "types.h"
#include "lib/net/hash.h"

static __always_inline void address_from_ipv4(struct address *a, __be32 ip)
{
	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = bpf_htonl(0xffff);
	a->word[3] = ip;
}

static __always_inline void address_from_ipv6(struct address *a, const struct in6_addr *ip)
{
	__builtin_memcpy(a, ip, sizeof(*a));
}

static __always_inline bool address_is_ipv4(const struct address *a)
{
	return a->word[0] == 0 && a->word[1] == 0 && a->word[2] == bpf_htonl(0xffff);
}

static __always_inline bool address_equals(const struct address *a, const struct address *b)
{
	return !((a->word[0] ^ b->word[0]) | (a->word[1] ^ b->word[1]) | (a->word[2] ^ b->word[2]) |
		 (a->word[3] ^ b->word[3]));
}

/* Whether an address is unset, or is ::. */
static __always_inline bool address_is_zero(const struct address *a)
{
	return !(a->word[0] | a->word[1] | a->word[2] | a->word[3]);
}

/* Mixes all four words. The caller multiplies once more by HASH_MULTIPLIER and takes the upper bits. */
static __always_inline __u32 address_hash(const struct address *a)
{
	__u32 hash = a->word[0];

	for (int i = 1; i < 4; i++)
		hash = hash * HASH_MULTIPLIER ^ a->word[i];
	return hash;
}

/* 127.0.0.0/8 (RFC 1122, 3.2.1.3) and ::1 (RFC 4291, 2.5.3). */
static __always_inline bool address_is_loopback(const struct address *a)
{
	if (address_is_ipv4(a))
		return bpf_ntohl(a->word[3]) >> 24 == 127;
	return !(a->word[0] | a->word[1] | a->word[2] | (a->word[3] ^ bpf_htonl(1)));
}

/* ff00::/8 */
static __always_inline bool address_is_ipv6_multicast(const struct address *a)
{
	const __be32 prefix = bpf_htonl(0xff000000);

	return (a->word[0] & prefix) == prefix;
}

/*
 * Addresses that never leave their link: fe80::/10 (RFC 4291, 2.5.6), ff00::/8, ::, 169.254.0.0/16 (RFC 3927),
 * 224.0.0.0/4 and 255.255.255.255. The kernel stack handles them.
 */
static __always_inline bool address_stays_on_link(const struct address *a)
{
	__u32 first = bpf_ntohl(a->word[0]);
	__u32 ipv4 = bpf_ntohl(a->word[3]);

	if (address_is_ipv4(a))
		return ipv4 >> 16 == 0xa9fe || ipv4 >> 28 == 0xe || ipv4 == 0xffffffff;
	return first >> 22 == 0xfe80 >> 6 || first >> 24 == 0xff || address_is_zero(a);
}
